package caddy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// Caddys with unequal numbers of clients, alone and beside two gateways: at most k in the
// upstream, and all wait equally long.
func TestFair(t *testing.T) {
	for name, gateways := range map[string]int{"three": 0, "three beside two kgate serve": 2} {
		t.Run(name, func(t *testing.T) {
			const k = 6
			x, upstream := cluster.NewUnequal(t, k)
			var urls, peers []string
			if gateways > 0 {
				for _, g := range cluster.Start(t, cluster.Options{Gateways: gateways, K: k, Upstream: upstream}).Gateways {
					urls, peers = append(urls, g.URL()), append(peers, g.Peer)
				}
			}
			all := fleet(t, 3, "pool {\n k 6\n }", upstream, peers...)
			for _, c := range all {
				urls = append(urls, c.url())
			}
			x.Run(t, urls, time.Duration(cluster.Count(t, "KGATE_CADDY_SECONDS", 15, 15))*time.Second, 0.03)
			if text := get(t, "http://"+all[0].admin+"/metrics"); !strings.Contains(text, `kgate_requests_total{`) || !strings.Contains(text, "caddy_") {
				t.Errorf("Caddy's metrics lack kgate's: %.300s", text)
			}
		})
	}
}

// Reloads under load, and one that is refused, lose nothing, and let no more in.
func TestReload(t *testing.T) {
	const k = 3
	judge, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) }))
	all := fleet(t, 2, "pool {\n k 3\n }", upstream)
	load := cluster.StartLoad(t, gatewaysOf(all), cluster.LoadOptions{Clients: 10})
	began := time.Now()
	for i := range 4 {
		time.Sleep(time.Second)
		if err := all[0].load(t, fmt.Sprintf("pool {\n k 3\n queue_limit %d\n }", 1000+i)); err != nil {
			t.Errorf("reload %d: %v", i, err)
		}
	}
	time.Sleep(time.Second)
	if err := all[0].load(t, "pool"); err == nil || !strings.Contains(err.Error(), "has no k") {
		t.Errorf("a pool without k: %v", err)
	}
	// Caddy shows the registry of the configuration that was refused.
	if text := get(t, "http://"+all[0].admin+"/metrics"); !strings.Contains(text, "kgate_requests_total{") {
		t.Errorf("after a refused reload the metrics lack kgate's: %.300s", text)
	}
	time.Sleep(time.Second)
	load.Stop()
	answers := load.Since(began)
	for _, a := range answers {
		if a.Result != cluster.OK {
			t.Errorf("%s: %s after %v", a.Gateway, a.Result, a.Done.Sub(began))
		}
	}
	_, most, _ := judge.Counts()
	t.Logf("%d answers, at most %d at once", len(answers), most)
	if most != k || len(answers) < 50 {
		t.Errorf("%d answers, at most %d at once, k is %d", len(answers), most, k)
	}
}

// A Caddy that is told to end refuses who waits, lets finish who is in flight, and the
// others have its slots; one that is killed loses its slots when its lease has run out.
func TestEnds(t *testing.T) {
	entered, leave := make(chan struct{}, 9), make(chan struct{})
	judge, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			entered <- struct{}{}
			<-leave
		}
	}))
	all := fleet(t, 4, "pool {\n k 1\n }", upstream)
	ask := func(c *caddy) <-chan string {
		out := make(chan string, 1)
		go func() {
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			res, err := client.Get(c.url() + "hold")
			if err != nil {
				out <- err.Error()
				return
			}
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
			out <- res.Status + res.Header.Get("Kgate-Refusal")
		}()
		return out
	}
	held := ask(all[0])
	<-entered
	waits := ask(all[0])
	time.Sleep(200 * time.Millisecond)
	if err := all[0].Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-waits; got != "503 Service Unavailabledraining" {
		t.Errorf("who waited got %s", got)
	}
	next := ask(all[1])
	select {
	case <-entered:
		t.Error("two at once")
	case <-time.After(500 * time.Millisecond):
	}
	released := time.Now()
	leave <- struct{}{}
	<-entered
	t.Logf("SIGTERM: the next is served %v after the end of the last", time.Since(released))
	if got := <-held; got != "200 OK" {
		t.Errorf("who was in flight got %s", got)
	}
	<-all[0].Done()

	last := ask(all[2])
	time.Sleep(200 * time.Millisecond)
	killed := time.Now()
	if err := all[1].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := <-next; strings.Contains(got, "200") {
		t.Errorf("the killed Caddy's client got %s", got)
	}
	<-entered
	t.Logf("SIGKILL: the next is served %v after it", time.Since(killed))
	close(leave)
	if got := <-last; got != "200 OK" {
		t.Errorf("the next one got %s", got)
	}
	if _, most, _ := judge.Counts(); most != 1 {
		t.Errorf("at most %d were in flight, k is 1", most)
	}
}

// A client that waits with a body, over HTTP/1.1 and TLS, and leaves, is out of the line
// within a second.
func TestWaitingPostLeaves(t *testing.T) {
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	_, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			entered <- struct{}{}
			<-leave
		}
	}))
	c := fleet(t, 1, "pool {\n k 1\n }", upstream)[0]
	held := make(chan error, 1)
	go func() {
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(c.url() + "hold")
		if err == nil {
			err = res.Body.Close()
		}
		held <- err
	}()
	<-entered
	for name, addr := range map[string]string{"http": c.http, "https": c.https} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if name == "https" {
			conn = tls.Client(conn, &tls.Config{ServerName: "localhost", InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		}
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nbody"); err != nil {
			t.Fatal(name, err)
		}
		c.awaitWaiting(t, 1)
		_ = conn.Close()
		t.Logf("%s: out of the line after %v", name, c.awaitWaiting(t, 0))
	}
	close(leave)
	if err := <-held; err != nil {
		t.Error(err)
	}
}

// An upgraded connection has its slot until it is closed, and its wait in a placeholder.
func TestUpgrade(t *testing.T) {
	_, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, brw)
	}))
	c := fleet(t, 1, "pool {\n k 1\n }", upstream)[0]
	conn, err := net.Dial("tcp", c.http)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+c.http+"\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	brw := bufio.NewReader(conn)
	res, err := http.ReadResponse(brw, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	defer res.Body.Close()
	_, _ = io.WriteString(conn, "echo")
	if got := make([]byte, 4); true {
		if _, err := io.ReadFull(brw, got); err != nil || string(got) != "echo" {
			t.Errorf("%q, %v", got, err)
		}
	}
	const hold = 700 * time.Millisecond
	time.AfterFunc(hold, func() { _ = conn.Close() })
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err = client.Get(c.url())
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	waited, err := strconv.ParseFloat(res.Header.Get("Test-Wait"), 64)
	if err != nil || waited < 500 {
		t.Errorf("the next one waited %v ms (%v) for a connection of %v", waited, err, hold)
	}
}

// Clients over TLS and HTTP/2, several on one connection, wait as others do.
func TestHTTPS(t *testing.T) {
	judge, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(50 * time.Millisecond) }))
	c := fleet(t, 1, "pool {\n k 2\n }", upstream)[0]
	transport := &http.Transport{TLSClientConfig: &tls.Config{ServerName: "localhost", InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: patience}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			res, err := client.Get("https://localhost:" + portOf(c.https) + "/")
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if res.ProtoMajor != 2 || res.StatusCode != http.StatusOK {
				t.Errorf("%s over %s", res.Status, res.Proto)
			}
		})
	}
	wg.Wait()
	if _, most, total := judge.Counts(); most != 2 || total < 10 {
		t.Errorf("%d requests, at most %d at once, k is 2", total, most)
	}
}
