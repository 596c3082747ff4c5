package peers

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// TestRoom: clients that keep their connections lose nothing when others come for whom room has to
// be made, and all of those are served. HAProxy and nginx stand beside the gateway, with as many
// connections.
func TestRoom(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	cluster.Need(t, "haproxy", "haproxy")
	cluster.Need(t, "nginx", "nginx-light")
	const (
		most = restartClients + 20
		// mayEnd is how old a connection without a request has to be to make room.
		mayEnd = 100 * time.Millisecond
	)
	rounds := 2
	if os.Getenv("KGATE_SOAK") != "" {
		rounds = 20
	}
	_, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	c := cluster.Start(t, cluster.Options{
		Gateways: 1, K: 2 * restartClients, Upstream: upstream, Name: "room", MaxConnections: most,
	})
	haproxy, other := cluster.ReservePort(t), cluster.ReservePort(t)
	haproxyBefore(t, haproxy, upstream[len("http://"):], most)
	nginxBefore(t, other, upstream[len("http://"):], 2*most)
	var wg sync.WaitGroup
	for name, addr := range map[string]string{"kgate": c.Gateways[0].HTTP, "HAProxy": haproxy, "nginx": other} {
		wg.Go(func() {
			kept := callHTTP1(t, addr, "/kept", mayEnd)
			var unserved atomic.Int64
			for range rounds {
				cluster.Span(t, 200*time.Millisecond)
				var newcomers sync.WaitGroup
				for range restartClients {
					newcomers.Go(func() {
						silent, err := visit(t, addr)
						if err != nil {
							t.Logf("%s: a newcomer, its request after %v: %v", name, silent, err)
						}
						if err != nil && silent < mayEnd {
							unserved.Add(1)
						}
					})
				}
				newcomers.Wait()
			}
			said := kept.end()
			t.Logf("%-8s %s, %d of %d newcomers not served", name, said, unserved.Load(), rounds*restartClients)
			if name == "kgate" && kept.refused.Load()+kept.lost.Load()+unserved.Load() > 0 {
				t.Error("requests are lost")
			}
		})
	}
	wg.Wait()
}

// visit sends one request over a connection of its own, and keeps that for a while. It returns
// how long the connection was without a request, at most.
func visit(t *testing.T, addr string) (silent time.Duration, err error) {
	began := time.Now()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = io.WriteString(conn, "GET /new HTTP/1.1\r\nHost: "+addr+"\r\n\r\n")
	silent = time.Since(began)
	if err != nil {
		return silent, err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return silent, err
	}
	if res.StatusCode != http.StatusOK {
		return silent, fmt.Errorf("status %d", res.StatusCode)
	}
	cluster.Span(t, 300*time.Millisecond)
	return silent, res.Body.Close()
}
