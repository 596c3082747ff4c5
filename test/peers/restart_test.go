package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// callers are clients that keep their connections and send one request after another. One that
// finds nobody listening asks again.
type callers struct {
	served, refused, lost atomic.Int64
	stop                  context.CancelFunc
	wg                    sync.WaitGroup
}

const (
	restartClients = 40
	// pause is the longest between an answer and the next request over its connection.
	pause = 20 * time.Millisecond
)

// call starts clients that send requests with do until stop. It reports whether the request
// had been sent when it failed.
func call(t *testing.T, do func(ctx context.Context) (res *http.Response, sent bool, err error)) *callers {
	ctx, cancel := context.WithCancel(t.Context())
	c := &callers{stop: cancel}
	for range restartClients {
		c.wg.Go(func() {
			for ctx.Err() == nil {
				res, sent, err := do(ctx)
				switch {
				case ctx.Err() != nil:
					return
				case err == nil && res.StatusCode == http.StatusOK:
					c.served.Add(1)
				case err == nil:
					c.refused.Add(1)
					t.Logf("%s %s", res.Status, res.Header.Get("Kgate-Refusal"))
				case sent:
					c.lost.Add(1)
					t.Logf("lost: %v", err)
				}
				cluster.Span(t, time.Duration(rand.Int64N(int64(pause))))
			}
		})
	}
	return c
}

// end ends the clients, and says what became of their requests.
func (c *callers) end() string {
	c.stop()
	c.wg.Wait()
	return fmt.Sprintf("%6d served, %d refused, %d lost", c.served.Load(), c.refused.Load(), c.lost.Load())
}

// keptConn is a client's connection over HTTP/1.1 that sends nothing twice.
type keptConn struct {
	net.Conn
	br   *bufio.Reader
	used time.Time // when it was last about to be, so not before it became idle at the server
}

// callHTTP1 calls url over kept connections of HTTP/1.1, one for each client. A server may end one
// that is idle for as long as idleFor: a request that comes later is not called lost.
func callHTTP1(t *testing.T, addr, path string, idleFor time.Duration) *callers {
	var mu sync.Mutex
	var unused []*keptConn
	t.Cleanup(func() {
		for _, c := range unused {
			_ = c.Close()
		}
	})
	request := "GET " + path + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n"
	return call(t, func(context.Context) (res *http.Response, sent bool, err error) {
		mu.Lock()
		var c *keptConn
		if len(unused) > 0 { // the one that was used longest ago: none is idle for longer than a pause
			c, unused = unused[0], unused[1:]
		}
		mu.Unlock()
		if c == nil {
			conn, err := net.DialTimeout("tcp", addr, patience)
			if err != nil {
				return nil, false, err
			}
			c = &keptConn{conn, bufio.NewReader(conn), time.Now()}
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		used := time.Now()
		_, err = io.WriteString(c, request)
		idle := time.Since(c.used)
		c.used = used
		if err == nil {
			res, err = http.ReadResponse(c.br, nil)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
		}
		if err != nil {
			if idle >= idleFor {
				t.Logf("%s: sent after %v: %v", addr, idle, err)
			}
			return nil, idle < idleFor, errors.Join(err, c.Close())
		}
		if res.Close {
			return res, true, c.Close()
		}
		mu.Lock()
		unused = append(unused, c)
		mu.Unlock()
		return res, true, nil
	})
}

// callHTTP2 calls url over HTTP/2 in the clear, over a few connections.
func callHTTP2(t *testing.T, url string) *callers {
	clients := make(chan *http.Client, restartClients)
	for i := range restartClients {
		if i%10 == 0 {
			tr := &http.Transport{Protocols: new(http.Protocols)}
			tr.Protocols.SetUnencryptedHTTP2(true)
			t.Cleanup(tr.CloseIdleConnections)
			for range 10 {
				clients <- &http.Client{Transport: tr}
			}
		}
	}
	return call(t, func(ctx context.Context) (res *http.Response, sent bool, err error) {
		client := <-clients
		defer func() { clients <- client }()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody) // which Go sends once only
		if err != nil {
			return nil, false, err
		}
		res, err = client.Do(req)
		if err != nil {
			refused := new(net.OpError)
			return nil, !errors.As(err, &refused) || refused.Op != "dial", err
		}
		_, err = io.Copy(io.Discard, res.Body)
		return res, true, errors.Join(err, res.Body.Close())
	})
}

// server is a proxy that is stopped in order and started again at the same address.
type server struct {
	name    string
	process *cluster.Process
	signal  syscall.Signal // for an end in order
	start   func() *cluster.Process
	callers *callers
}

// restart ends the server in order, and starts it again.
func (s *server) restart(t *testing.T) {
	t.Helper()
	if err := s.process.Signal(s.signal); err != nil {
		t.Fatal(err)
	}
	if _, err := s.process.Wait(patience); err != nil {
		t.Fatal(err)
	}
	s.process = s.start()
}

// TestRestarts: clients that keep their connections lose nothing when one of three gateways is
// restarted while slots are free, and are refused nothing. HAProxy and nginx are restarted beside
// it.
func TestRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	cluster.Need(t, "haproxy", "haproxy")
	cluster.Need(t, "nginx", "nginx-light")
	rounds := 2
	if os.Getenv("KGATE_SOAK") != "" {
		rounds = 20
	}
	var seen sync.Map // requests at the upstream, by path
	_, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := seen.LoadOrStore(r.URL.Path, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		_, _ = io.WriteString(w, "ok")
	}))
	host := upstream[len("http://"):]

	c := cluster.Start(t, cluster.Options{Gateways: 3, K: 2 * restartClients, Upstream: upstream, Name: "again", Durable: true})
	gateway := &server{name: "kgate", process: c.Gateways[0].Process, signal: syscall.SIGTERM, start: func() *cluster.Process {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		g := c.Restart(t, 0)
		if err := g.AwaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		return g.Process
	}}
	gateway.callers = callHTTP1(t, c.Gateways[0].HTTP, "/kgate", time.Second)
	overHTTP2 := callHTTP2(t, c.Gateways[0].URL()+"h2")
	elsewhere := callHTTP1(t, c.Gateways[1].HTTP, "/other", time.Second) // has tokens, too

	at := cluster.ReservePort(t)
	haproxy := &server{name: "HAProxy", signal: syscall.SIGUSR1, start: func() *cluster.Process {
		return haproxyBefore(t, at, host, 200)
	}}
	haproxy.process, haproxy.callers = haproxy.start(), callHTTP1(t, at, "/haproxy", time.Second)

	nginxAt := cluster.ReservePort(t)
	other := &server{name: "nginx", signal: syscall.SIGQUIT, start: func() *cluster.Process { return nginxBefore(t, nginxAt, host, 200) }}
	other.process, other.callers = other.start(), callHTTP1(t, nginxAt, "/nginx", time.Second)

	var wg sync.WaitGroup
	servers := []*server{gateway, haproxy, other}
	for range rounds {
		cluster.Span(t, 200*time.Millisecond)
		for _, s := range servers {
			wg.Go(func() { s.restart(t) })
		}
		wg.Wait()
	}
	cluster.Span(t, 200*time.Millisecond)
	t.Logf("%d restarts, %d clients", rounds, restartClients)
	for _, s := range servers {
		t.Logf("%-8s %s", s.name, s.callers.end())
	}
	t.Logf("%-8s %s, over HTTP/2", "kgate", overHTTP2.end())
	t.Logf("%-8s %s, at another gateway", "kgate", elsewhere.end())
	for path, calls := range map[string]*callers{"/kgate": gateway.callers, "/h2": overHTTP2, "/other": elsewhere} {
		if calls.refused.Load() > 0 || calls.lost.Load() > 0 {
			t.Errorf("%s: %d requests were refused and %d lost", path, calls.refused.Load(), calls.lost.Load())
		}
		if n, _ := seen.Load(path); n.(*atomic.Int64).Load() < calls.served.Load() {
			t.Errorf("%s: %d requests at the upstream, and %d answers", path, n.(*atomic.Int64).Load(), calls.served.Load())
		}
	}
}

// nginxBefore starts nginx at an address, before the upstream.
func nginxBefore(t *testing.T, addr, upstream string, connections int) *cluster.Process {
	t.Helper()
	return nginx(t, addr, connections, fmt.Sprintf(`
  upstream up { server %s; keepalive 8; }
  server {
    listen %s;
    location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }`, upstream, addr))
}

// haproxyBefore starts HAProxy at an address, before the upstream.
func haproxyBefore(t *testing.T, addr, upstream string, connections int) *cluster.Process {
	t.Helper()
	p := cluster.StartProcess(t, "haproxy", "-db", "-q", "-f", writeFile(t, "haproxy.cfg", fmt.Sprintf(`global
  maxconn %d
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen up
  bind %s
  server up %s
`, connections, addr, upstream)))
	if err := cluster.AwaitListening(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	return p
}
