package proxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pace"
)

// pacing is an Admitter whose slots have a pace.
type pacing struct {
	*semaphore
	down, up pace.Pacer
}

type pacingSlot struct {
	Slot
	of *pacing
}

func (p *pacing) Acquire(ctx context.Context, req admission.Request) (Slot, error) {
	s, err := p.semaphore.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	return pacingSlot{s, p}, nil
}

func (s pacingSlot) Pacers() (down, up *pace.Pacer) { return &s.of.down, &s.of.up }

// newPacing has a gateway's requests paced: so fast that no test waits for it.
func newPacing() (p *pacing, into func(*Config)) {
	p = new(pacing)
	const fast = 1 << 30
	p.down.Set(1, fast)
	p.up.Set(1, fast)
	return p, func(c *Config) {
		p.semaphore = c.Admitter.(*semaphore)
		c.Admitter = p
	}
}

// moved waits until no transfer is left, and checks how many bytes have been paid for.
func (p *pacing) moved(t *testing.T, what string, down, up int) {
	t.Helper()
	p.await(0, 0)
	d, u := p.down.Totals(), p.up.Totals()
	if d.Moved != uint64(down) || u.Moved != uint64(up) || d.Transfers+u.Transfers != 0 {
		t.Errorf("%s: %d bytes down and %d up were paid for, %d and %d have moved; %d transfers are left", what, d.Moved, u.Moved, down, up, d.Transfers+u.Transfers)
	}
}

// TestPaced: every byte of bodies, and of connections that are no requests, is paid for
// once, whichever way it goes.
func TestPaced(t *testing.T) {
	const size = 3<<20 + 7
	big := bytes.Repeat([]byte("x"), size)
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if n > 0 {
			return
		}
		if r.URL.Path == "/known" {
			w.Header().Set("Content-Length", "3145735")
		}
		_, _ = w.Write(big)
	})
	for _, scheme := range []string{"http", "h2c"} {
		for name, c := range map[string]struct {
			method, path string
			body         func() io.Reader
			down, up     int
		}{
			"length":       {"GET", "/known", nil, size, 0},
			"chunks":       {"GET", "/chunks", nil, size, 0},
			"head":         {"HEAD", "/known", nil, 0, 0},
			"upload":       {"PUT", "/", func() io.Reader { return bytes.NewReader(big) }, 0, size},
			"chunked body": {"PUT", "/", func() io.Reader { return io.MultiReader(bytes.NewReader(big)) }, 0, size},
		} {
			p, into := newPacing()
			g := newGateway(t, 1, serve, into, func(cfg *Config) {
				u := cfg.Pools[0].Upstreams[0]
				cfg.Pools[0].Upstreams = []*url.URL{{Scheme: scheme, Host: u.Host}}
			})
			req := g.request(c.method, c.path)
			if c.body != nil {
				req, _ = http.NewRequest(c.method, g.url+c.path, c.body())
			}
			res := g.do(req)
			n, err := io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if err != nil || int(n) != c.down {
				t.Errorf("%s, %s: %d bytes, %v", scheme, name, n, err)
			}
			p.moved(t, scheme+", "+name, c.down, c.up)
		}
	}
}

// TestPacedConnections: so it is with upgraded and with TCP connections.
func TestPacedConnections(t *testing.T) {
	said := strings.Repeat("ping", 1<<16)
	p, into := newPacing()
	g := newGateway(t, 1, echoUpgrade(t), into)
	c := g.dial()
	c.send(upgradeRequest)
	c.response()
	go c.send(said)
	c.expect(said)
	_ = c.Close()
	p.moved(t, "upgrade", len(said), len(said))

	p, into = newPacing()
	up := newTCPUpstream(t, banner)
	g = newTCPGateway(t, 1, []*url.URL{up.url}, into)
	c = g.dial()
	c.expect("hello\n")
	go c.send(said)
	c.expect(said)
	_ = c.Close()
	p.moved(t, "tcp", len("hello\n")+len(said), len(said))
}

// TestPacedEnds: a transfer that may move nothing ends as any other: its client leaves, its
// pool's bound is reached, its slot is lost, or the answer comes before the upload's end.
func TestPacedEnds(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/early" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	})
	for name, end := range map[string]func(g *gateway, leave context.CancelFunc){
		"client": func(_ *gateway, leave context.CancelFunc) { leave() },
		"bound":  func(*gateway, context.CancelFunc) {}, // hold.max, below
		"lost":   func(g *gateway, _ context.CancelFunc) { g.sem.lapse() },
	} {
		p, into := newPacing()
		p.down.Set(0, 1)
		g := newGateway(t, 1, answer, into, func(c *Config) {
			if name == "bound" {
				c.Pools[0].HoldMax = 50 * time.Millisecond
			}
		})
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if res, err := g.client.Do(g.request("GET", "/").WithContext(ctx)); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		}()
		for begun := false; !begun; {
			select {
			case <-done: // hold.max was quicker
				begun = true
			case <-time.After(time.Millisecond):
				begun = p.down.Totals().Transfers > 0
			}
		}
		end(g, leave)
		<-done
		leave()
		p.moved(t, name, 0, 0)
	}

	p, into := newPacing()
	p.up.Set(0, 1)
	g := newGateway(t, 1, answer, into)
	c := g.dial()
	c.send("PUT /early HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nhello")
	if res := c.response(); res.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", res.StatusCode)
	}
	p.moved(t, "early answer", 0, 0)
}

// TestRequestRate: one request is no faster than its pool allows, both ways.
func TestRequestRate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		const perSecond, size = 4 << 20, 1 << 20
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n, _ := io.Copy(io.Discard, r.Body); n == 0 {
				_, _ = w.Write(make([]byte, size))
			}
		}), func(c *Config) { c.Pools[0].RequestRate = perSecond })
		for _, body := range []io.Reader{nil, bytes.NewReader(make([]byte, size))} {
			req, _ := http.NewRequest(http.MethodPut, g.url, body)
			began := time.Now()
			res := g.do(req)
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			least := time.Duration(float64(size-pace.Burst(perSecond, 1)) / perSecond * float64(time.Second))
			if took := time.Since(began); took < least || took > least+least/10 {
				t.Errorf("%d bytes took %v, want %v", size, took, least)
			}
		}
	})
}

// TestNoPaceWithoutPool: a route without a pool moves bytes also when a request of a pool with a rate was
// served before.
func TestNoPaceWithoutPool(t *testing.T) {
	_, into := newPacing()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }), into, func(c *Config) {
		c.Routes = append([]Route{{Match: Match{PathPrefix: "/direct"}, Upstreams: c.Pools[0].Upstreams}}, c.Routes...)
	})
	for range 20 {
		for _, path := range []string{"/", "/direct"} {
			res := g.do(g.request("GET", path))
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if string(body) != "x" || err != nil {
				t.Fatalf("%s: %s, %q, %v", path, res.Status, body, err)
			}
		}
	}
}
