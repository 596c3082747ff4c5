package proxy

import (
	"context"
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
)

// names are what a name server says: the answers to a question.
type names func(q dnsmessage.Question) []dnsmessage.ResourceBody

// serve answers all look-ups of this process until the test ends.
func (n names) serve(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			q := m.Questions[0]
			for _, body := range n(q) {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}, Body: body,
				})
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		// A Dialer would read net.DefaultResolver, and package net's lookups outlive their callers.
		return net.DialUDP("udp", nil, conn.LocalAddr().(*net.UDPAddr))
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // a question without an answer waits for seconds
		<-done
		_ = conn.Close()
	})
}

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
		names(func(q dnsmessage.Question) []dnsmessage.ResourceBody {
			if q.Type != dnsmessage.TypeA {
				return nil
			}
			return []dnsmessage.ResourceBody{&dnsmessage.AResource{A: addr.Load().As4()}}
		}).serve(t)
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
