package gateway_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/gateway"
	"github.com/kgate/kgate/internal/nametest"
	"github.com/kgate/kgate/proxy"
)

// counted is a server that counts what it has in flight.
type counted struct {
	addr  string
	mu    sync.Mutex
	now   int
	most  int
	total int
}

func newCounted(t *testing.T, addr string) *counted {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{addr: l.Addr().String()}
	add := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.now += n; n > 0 {
			c.most, c.total = max(c.most, c.now), c.total+1
		}
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		add(1)
		defer add(-1)
		time.Sleep(20 * time.Millisecond)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return c
}

func (c *counted) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// TestServersOfAName: the servers of a name, by its addresses or its SRV records, come and go under
// load at three gateways. Each has at most its k in flight, a new one is used, and one that has gone
// gets no requests.
func TestServersOfAName(t *testing.T) {
	first := newCounted(t, "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(first.addr)
	servers := []*counted{first, newCounted(t, "127.0.0.2:"+port), newCounted(t, "127.0.0.3:"+port)}
	var mu sync.Mutex
	listed := []int{0, 1}
	list := func(now ...int) {
		mu.Lock()
		defer mu.Unlock()
		listed = now
	}
	n, _ := strconv.ParseUint(port, 10, 16)
	nametest.Serve(t, func(q dnsmessage.Question) (all []dnsmessage.ResourceBody) {
		mu.Lock()
		defer mu.Unlock()
		name := q.Name.String()
		for i, c := range servers {
			addr := netip.MustParseAddrPort(c.addr).Addr().As4()
			for _, is := range listed {
				switch {
				case is != i:
				case q.Type == dnsmessage.TypeA && name == "llm.test.":
					all = append(all, &dnsmessage.AResource{A: addr})
				case q.Type == dnsmessage.TypeSRV && name == "_http._tcp.llm.test.":
					all = append(all, &dnsmessage.SRVResource{Port: uint16(n), Target: dnsmessage.MustNewName(fmt.Sprintf("s%d.test.", i))})
				}
			}
			if q.Type == dnsmessage.TypeA && name == fmt.Sprintf("s%d.test.", i) {
				all = append(all, &dnsmessage.AResource{A: addr})
			}
		}
		return all
	})
	for _, host := range []string{"llm.test:" + port, "_http._tcp.llm.test"} {
		t.Run(host, func(t *testing.T) {
			list(0, 1)
			for _, c := range servers {
				c.mu.Lock()
				c.most, c.total = 0, 0
				c.mu.Unlock()
			}
			gateways := startNamed(t, &url.URL{Scheme: "http", Host: host, Fragment: "k_each=2"})
			stop := loadOn(t, gateways)
			eventually(t, "both servers are used", func() bool { return servers[0].requests() > 20 && servers[1].requests() > 20 })
			list(0, 1, 2)
			eventually(t, "the new server is used", func() bool { return servers[2].requests() > 20 })
			list(1, 2)
			eventually(t, "the one that has gone is not used", func() bool {
				before := servers[0].requests()
				time.Sleep(300 * time.Millisecond)
				return servers[0].requests() == before
			})
			list(0, 1, 2)
			before := servers[0].requests()
			eventually(t, "it is back", func() bool { return servers[0].requests() > before+20 })
			stop()
			for i, c := range servers {
				if t.Logf("server %d: %d requests, at most %d in flight", i, c.total, c.most); c.most > 2 {
					t.Errorf("server %d had %d in flight", i, c.most)
				}
			}
		})
	}
}

func startNamed(t *testing.T, u *url.URL) (all []*gateway.Gateway) {
	t.Helper()
	var join []string
	for i := range 3 {
		g, err := gateway.Start(t.Context(), gateway.Config{
			Config: kgate.Config{Name: fmt.Sprintf("gw-%d", i+1), Peers: kgate.Peers{Listen: "127.0.0.1:0", Lease: 6 * time.Second, Join: join, Expect: 3}},
			Pools: []gateway.Pool{{
				Pool: kgate.Pool{Name: "llm"}, Upstreams: []*url.URL{u}, Transport: proxy.Transport{Resolve: 100 * time.Millisecond},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Close() })
		join = append(join, g.PeerAddr())
		all = append(all, g)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, g := range all {
		if err := g.Ready(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// loadOn has four clients at each gateway ask, until stop.
func loadOn(t *testing.T, gateways []*gateway.Gateway) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var fronts []*httptest.Server
	for _, g := range gateways {
		front := httptest.NewServer(g.Handler())
		fronts = append(fronts, front)
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					res, err := front.Client().Get(front.URL)
					if err != nil {
						t.Error(err)
						return
					}
					if res.StatusCode != http.StatusOK {
						t.Error(res.Status, res.Header)
					}
					_ = res.Body.Close()
				}
			})
		}
	}
	return func() {
		cancel()
		wg.Wait()
		for _, front := range fronts {
			front.Close()
		}
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begun := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("never: %s", what)
		}
	}
}
