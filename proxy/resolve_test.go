package proxy

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kgate/kgate/internal/nametest"
)

// TestNameFollowed: when an upstream's name has another address, requests follow, those
// over kept connections too, and none fails. The server at the old address goes on.
func TestNameFollowed(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		serve := func(addr string) *httptest.Server {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
			}))
			s.Listener = l
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetHTTP1(true)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			s.Start()
			t.Cleanup(s.Close)
			return s
		}
		old := serve("127.0.0.1:0")
		_, port, _ := net.SplitHostPort(old.Listener.Addr().String())
		next := serve("127.0.0.2:" + port)
		var addr atomic.Pointer[netip.Addr]
		one, two := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
		addr.Store(&one)
		nametest.Serve(t, func(q dnsmessage.Question) []dnsmessage.ResourceBody {
			if q.Type != dnsmessage.TypeA {
				return nil
			}
			return []dnsmessage.ResourceBody{&dnsmessage.AResource{A: addr.Load().As4()}}
		})
		const every = 50 * time.Millisecond
		g := newGateway(t, 1, nil, func(c *Config) {
			c.Pools[0].Upstreams = []*url.URL{mustURL(t, scheme+"://upstream.test:"+port)}
			c.Pools[0].Transport.Resolve = every
		})
		ask := g.served
		for range 20 {
			if got := ask(); got != old.Listener.Addr().String() {
				t.Fatalf("answered by %s", got)
			}
		}
		addr.Store(&two)
		began := time.Now()
		for ask() != next.Listener.Addr().String() {
			if time.Since(began) > patience {
				t.Fatal("requests still go to the old address")
			}
			time.Sleep(time.Millisecond) // there is room for so many records
		}
		t.Logf("%s: followed after %v, looked up every %v", scheme, time.Since(began).Round(time.Millisecond), every)
		for range 20 {
			if got := ask(); got != next.Listener.Addr().String() {
				t.Errorf("answered by %s", got)
			}
		}
	}
}
