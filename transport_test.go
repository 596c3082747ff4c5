package kgate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy"
)

// leased is a slot under a lease that the test takes away, without telling: as it is for
// a process that was stopped.
type leased struct {
	proxy.Slot // not used
	standing   *atomic.Uint64
	under      uint64
}

func (l leased) Valid() bool   { return l.standing.Load() == l.under }
func (l leased) Fence() string { return "p/1/1/1" }

// slotUnder returns a context with a slot.
func slotUnder(t *testing.T, standing *atomic.Uint64) context.Context {
	t.Helper()
	return proxy.WithHeld(t.Context(), &proxy.Held{Slot: leased{standing: standing, under: standing.Load()}, Lost: make(chan struct{})})
}

// TestTransport: no byte is written after the lease is lost, though nothing has told the
// request. A plain transport is what catches the judge asleep.
func TestTransport(t *testing.T) {
	for name, c := range map[string]struct {
		tls, plain bool
	}{"http": {}, "https": {tls: true}, "planted: plain": {plain: true}} {
		t.Run(name, func(t *testing.T) {
			var received atomic.Int64
			first := make(chan struct{}, 1)
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Kgate-Fence"); (got == "p/1/1/1") == c.plain {
					t.Errorf("fence %q", got)
				}
				buf := make([]byte, 1)
				for {
					n, err := r.Body.Read(buf)
					if n > 0 && received.Add(1) == 1 {
						first <- struct{}{}
					}
					if err != nil {
						return
					}
				}
			}))
			if s.EnableHTTP2 = c.tls; c.tls {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			var standing atomic.Uint64
			standing.Store(1)
			base := s.Client().Transport.(*http.Transport)
			base.ForceAttemptHTTP2 = c.tls
			var rt http.RoundTripper = base
			if !c.plain {
				rt = newFenced(base, standing.Load)
			}
			client := http.Client{Transport: rt}
			defer client.CloseIdleConnections()
			body, feed := io.Pipe()
			req, err := http.NewRequestWithContext(slotUnder(t, &standing), http.MethodPost, s.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				res, err := client.Do(req)
				if err == nil {
					err = res.Body.Close()
				}
				ended <- err
			}()
			_, _ = feed.Write([]byte("a"))
			<-first
			standing.Store(2) // another lease is as bad as none
			go func() {
				_, _ = feed.Write([]byte("b"))
				_ = feed.Close()
			}()
			err = <-ended
			s.Close() // it has read what there is
			if got := received.Load(); c.plain != (got == 2) {
				t.Errorf("%d bytes have come", got)
			}
			if c.plain != (err == nil) {
				t.Errorf("the request: %v", err)
			}
		})
	}
}

// TestTransportKept: a connection that was made under the lease before is not used under
// the next one, by whatever slot.
func TestTransportKept(t *testing.T) {
	seen := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.RemoteAddr }))
	defer s.Close()
	var standing atomic.Uint64
	standing.Store(1)
	client := http.Client{Transport: newFenced(nil, standing.Load), Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	get := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	before := slotUnder(t, &standing)
	for range 2 {
		if err := get(before); err != nil {
			t.Fatal(err)
		}
	}
	standing.Store(2)
	if err := get(before); !errors.Is(err, ErrLost) {
		t.Errorf("with a lost slot: %v", err)
	}
	if err := get(slotUnder(t, &standing)); err != nil {
		t.Errorf("with a new slot: %v", err)
	}
	if err := get(t.Context()); !errors.Is(err, errNoSlot) {
		t.Errorf("without a slot: %v", err)
	}
	close(seen)
	var remotes []string
	for r := range seen {
		remotes = append(remotes, r)
	}
	if len(remotes) != 3 || remotes[0] != remotes[1] || remotes[1] == remotes[2] {
		t.Errorf("connections: %v", remotes)
	}
}
