package haproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/test/cluster"
)

// inFront starts a HAProxy in front of a gateway, as docs/in-front.md has it, and returns
// its addresses for HTTP/1.1, and for HTTP/2, each with connections to the gateway that
// are kept, and that are not.
func inFront(t *testing.T, gateway string) (addrs map[string]string) {
	t.Helper()
	cluster.Need(t, "haproxy", "haproxy")
	addrs = map[string]string{"HTTP/1.1": "", "HTTP/1.1, closing": "", "HTTP/2": "", "HTTP/2, closing": ""}
	config := "defaults\n mode http\n timeout connect 5s\n timeout client 1m\n timeout server 1m\n" +
		"backend kept\n retries 1\n option redispatch\n server gw " + gateway + " send-proxy-v2\n" +
		"backend closing\n option http-server-close\n server gw " + gateway + " send-proxy-v2\n"
	for name := range addrs {
		addr := cluster.ReservePort(t)
		addrs[name] = addr
		version, closing := strings.CutSuffix(name, ", closing")
		if closing {
			config += "frontend closing-"
		} else {
			config += "frontend kept-"
		}
		if version == "HTTP/2" {
			config += "2\n bind " + addr + " proto h2\n"
		} else {
			config += "1\n bind " + addr + "\n"
		}
		if closing {
			config += " default_backend closing\n"
		} else {
			config += " default_backend kept\n"
		}
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := cluster.StartProcess(t, "haproxy", "-db", "-q", "-f", file)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("HAProxy says:\n%s", p.Log.Tail(30))
		}
		if err := p.Signal(syscall.SIGKILL); err != nil { // it would wait for its clients
			t.Error(err)
		}
	})
	for _, addr := range addrs {
		if err := cluster.AwaitListening(t.Context(), addr); err != nil {
			t.Fatalf("%v\n%s", err, p.Log.Tail(30))
		}
	}
	return addrs
}

// TestRefusedUpload: behind HAProxy a client gets the gateway's refusal, and no 502, however
// much of its request's body is still to come.
func TestRefusedUpload(t *testing.T) {
	rounds := 3
	if soak {
		rounds = 50
	}
	held := make(chan struct{})
	_, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-held:
		case <-r.Context().Done():
		}
	}))
	c := cluster.Start(t, cluster.Options{
		Gateways: 1, K: 1, Upstream: upstream, Name: "refused", Listen: `proxy_protocol: ["127.0.0.1/32"]`,
		Pools: []cluster.Pool{
			{Name: "full", K: 1, Upstream: upstream, Settings: "queue: {limit: 1}"},
			{Name: "limited", K: 1, Upstream: upstream, Settings: "queue: {per_client: {limit: 1}}"},
		},
	})
	g := c.Gateways[0]
	addrs := inFront(t, g.HTTP)
	ctx, cancel := context.WithCancel(t.Context())
	var holders sync.WaitGroup
	defer holders.Wait()
	defer cancel()
	for _, pool := range []string{"full", "limited"} {
		for waiting := range 2 {
			holders.Go(func() { _ = ask(ctx, newClient(t), "http://"+addrs["HTTP/1.1"]+"/"+pool+"/", false) })
			if err := g.AwaitPool(t.Context(), pool, func(p admin.Pool) bool { return p.InFlight == 1 && p.Waiting == waiting }); err != nil {
				t.Fatal(err)
			}
		}
	}
	h2 := newClient(t)
	h2.Transport.(*http.Transport).Protocols = new(http.Protocols)
	h2.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	for name, addr := range addrs {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, size := range []int64{10, 1 << 20, 100 << 20} {
				for _, expect := range []bool{false, true} {
					for pool, want := range map[string]int{"full": 503, "limited": 429} {
						u := upload{method: method, pool: pool, size: size, expect: expect}
						for range rounds {
							send := u.overHTTP1
							if strings.HasPrefix(name, "HTTP/2") {
								send = func(ctx context.Context, addr string) (int, error) { return u.overHTTP2(ctx, h2, addr) }
							}
							began := time.Now()
							if status, err := send(t.Context(), addr); status != want || err != nil {
								t.Errorf("%s, %+v: got %d, %v, after %v, want %d", name, u, status, err, time.Since(began), want)
							} else if took := time.Since(began); took > 3*time.Second {
								t.Errorf("%s, %+v: refused after %v", name, u, took)
							}
						}
					}
				}
			}
		}
	}
}

// upload is a request with a body.
type upload struct {
	method, pool string
	size         int64
	expect       bool // to be told to go on; over HTTP/1.1 the body is sent all the same
}

// overHTTP1 sends the request and returns the status of its answer.
func (u upload) overHTTP1(ctx context.Context, addr string) (status int, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	head := fmt.Sprintf("%s /%s/ HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n", u.method, u.pool, u.size)
	if u.expect {
		head += "Expect: 100-continue\r\n"
	}
	go func() {
		_, _ = io.WriteString(conn, head+"\r\n")
		_, _ = io.Copy(conn, io.LimitReader(zeros{}, u.size)) // until HAProxy has had enough
	}()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return u.read(res)
}

// overHTTP2 does so over HTTP/2.
func (u upload) overHTTP2(ctx context.Context, c *http.Client, addr string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, u.method, "http://"+addr+"/"+u.pool+"/", io.LimitReader(zeros{}, u.size))
	if err != nil {
		return 0, err
	}
	req.ContentLength = u.size
	if u.expect {
		req.Header.Set("Expect", "100-continue")
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	return u.read(res)
}

// read reads the answer to its end.
func (u upload) read(res *http.Response) (status int, err error) {
	defer res.Body.Close()
	if res.Header.Get("Kgate-Refusal") == "" {
		err = errors.New("it is not the gateway's")
	}
	if _, read := io.Copy(io.Discard, res.Body); err == nil {
		err = read
	}
	return res.StatusCode, err
}

// zeros is endless.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
