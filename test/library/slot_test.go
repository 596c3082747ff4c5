package library

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/internal/timing"
)

// TestLoss: a node that is cut off gives up its slots within a lease, and its holders
// know.
func TestLoss(t *testing.T) {
	const lease = 3 * time.Second
	nodes := cluster(t, 3, 3, func(c *kgate.Config) { c.Peers.Lease = lease })
	slot := acquire(t, nodes[0])
	defer slot.Release()
	ctx, cancel := slot.Context(t.Context())
	defer cancel()
	entered, causes := make(chan struct{}, 2), make(chan error, 2)
	addr := serve(t, nodes[0], func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
		if kgate.FromContext(r.Context()).Valid() {
			t.Error("the slot of a node without a lease is valid")
		}
		causes <- context.Cause(r.Context())
	})
	dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	soon(t, "a request in the handler", entered)
	upgraded := dial(t, serve(t, nodes[0], func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		entered <- struct{}{}
		_, _ = conn.Read(make([]byte, 1)) // until the loss closes it
	}), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	soon(t, "a hijacked connection", entered)
	waited := make(chan error, 1)
	go func() {
		_, err := nodes[0].Acquire(context.Background(), "p")
		waited <- err
	}()
	eventually(t, "one waits", func() bool { return nodes[0].Stats("p").Waiting == 1 })
	began := time.Now()
	for _, n := range nodes[1:] {
		_ = n.Close() // without a word: there is no majority any more
	}
	soon(t, "the slot is lost", slot.Lost())
	if cause := soon(t, "the handler's context ends", causes); !errors.Is(cause, kgate.ErrLost) {
		t.Errorf("the handler's context has ended by %v", cause)
	}
	if _, err := upgraded.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the hijacked connection: %v", err)
	}
	took := time.Since(began)
	soon(t, "the context ends", ctx.Done())
	if cause := context.Cause(ctx); !errors.Is(cause, kgate.ErrLost) || slot.Valid() {
		t.Errorf("the context has ended by %v, valid %v", cause, slot.Valid())
	}
	// The lease counts from its last renewal, which was before.
	timing.Within(t, "lost", took, lease)
	var refused *kgate.RefusedError
	if _, err := nodes[0].TryAcquire(t.Context(), "p"); !errors.As(err, &refused) || !errors.Is(refused.Reason, kgate.ErrIsolated) || refused.Pool != "p" {
		t.Errorf("a slot without a lease: %v", err)
	}
	select {
	case err := <-waited:
		t.Errorf("who waits has not waited for the end of the split: %v", err)
	default:
	}
	if err := nodes[0].Close(); err != nil {
		t.Error(err)
	}
	if err := soon(t, "the end of the wait", waited); !errors.Is(err, kgate.ErrClosed) {
		t.Errorf("who waits got %v", err)
	}
}

// TestAcquireWaitsForTheNode: three nodes that begin at once, and whose programs ask at once for
// slots: nobody waits for the nodes, and nobody is refused.
func TestAcquireWaitsForTheNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var addrs []string
	errs, in, most := make(chan error, 3), new(atomic.Int32), new(atomic.Int32)
	for i := range 3 {
		cfg := config(fmt.Sprintf("node-%d", i+1), 1)
		cfg.Peers.Expect, cfg.Peers.Join = 3, addrs
		n, err := kgate.Start(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = n.Close() }()
		addrs = append(addrs, n.PeerAddr())
		go func() {
			errs <- n.Do(ctx, "p", func(ctx context.Context) error {
				most.Store(max(most.Load(), in.Add(1)))
				defer in.Add(-1)
				time.Sleep(10 * time.Millisecond)
				return ctx.Err()
			})
		}()
	}
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d at once", most.Load())
	}
}

// TestTryAcquire: it takes what is free, also at another node, and does not wait for what is not.
func TestTryAcquire(t *testing.T) {
	nodes := cluster(t, 2, 1)
	for _, n := range nodes {
		slot, err := n.TryAcquire(t.Context(), "p")
		for begun := time.Now(); errors.Is(err, kgate.ErrBusy) && time.Since(begun) < patience; { // a busy machine
			slot, err = n.TryAcquire(t.Context(), "p")
		}
		if err != nil {
			t.Fatal(err)
		}
		var refused *kgate.RefusedError
		if _, err := nodes[0].TryAcquire(t.Context(), "p"); !errors.As(err, &refused) || !errors.Is(refused.Reason, kgate.ErrBusy) {
			t.Errorf("a second one: %v", err)
		}
		slot.Release()
	}
}

// TestDo returns the work's error, gives the slot back, by a panic, too, and says if it was lost.
func TestDo(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	broken := errors.New("broken")
	for _, want := range []error{nil, broken} {
		if err := n.Do(t.Context(), "p", func(ctx context.Context) error {
			if !kgate.FromContext(ctx).Valid() {
				t.Error("the work has no slot")
			}
			return want
		}); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	func() {
		defer func() { _ = recover() }()
		_ = n.Do(t.Context(), "p", func(context.Context) error { panic("x") })
	}()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Do(t.Context(), "p", func(ctx context.Context) error {
		if err := n.Shutdown(ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-ctx.Done()
		return broken
	}); !errors.Is(err, kgate.ErrLost) || !errors.Is(err, broken) {
		t.Errorf("a slot that is lost: %v", err)
	}
}

// TestOnWait: who waits is told its place, over all nodes, until it has its slot.
func TestOnWait(t *testing.T) {
	nodes := cluster(t, 2, 1)
	held := acquire(t, nodes[0])
	places, done := make(chan int, 100), make(chan error, 2)
	for i, n := range nodes {
		go func() {
			slot, err := n.Acquire(t.Context(), "p", kgate.OnWait(func(place int, _ time.Duration) {
				if i == 1 {
					places <- place
				}
			}))
			slot.Release()
			done <- err
		}()
		eventually(t, "it waits", func() bool { return n.Stats("p").Waiting == 1 })
	}
	for place := soon(t, "its place", places); place != 2; { // the first answer may be from before
		place = soon(t, "its place", places)
	}
	held.Release()
	for range nodes {
		if err := soon(t, "a slot", done); err != nil {
			t.Error(err)
		}
	}
}

// TestZeroValues say what they are, and do not panic.
func TestZeroValues(t *testing.T) {
	var none *kgate.Node
	for _, n := range []*kgate.Node{none, new(kgate.Node)} {
		_, acquire := n.Acquire(t.Context(), "p")
		_, request := n.RequestTicket(t.Context(), "p", time.Minute)
		_, redeem := n.Ticket("an id").Redeem(t.Context())
		for what, err := range map[string]error{
			"Acquire": acquire, "RequestTicket": request, "Redeem": redeem, "Ready": n.Ready(t.Context()), "Shutdown": n.Shutdown(t.Context()),
			"Close": n.Close(), "SetK": n.SetK(t.Context(), "p", 1), "Drain": n.Drain(t.Context()), "Err": n.Err(),
			"Reload": n.Reload(config("node-1", 1)), "SetPeerKey": n.SetPeerKey(nil),
			"Done": panics(func() { n.Done() }), "BeginDrain": panics(n.BeginDrain), "PeerAddr": panics(func() { n.PeerAddr() }),
			"Middleware": panics(func() { n.Middleware("p") }), "Transport": panics(func() { n.Transport(nil) }), "Limit": panics(func() { n.Limit("p", nil) }),
		} {
			says(t, what, err, "was not started")
		}
		if n.NotReady() == "" || n.Stats("p") != (kgate.Stats{}) {
			t.Error("a node that was not started is ready")
		}
	}
	var ticket *kgate.Ticket
	for _, ticket := range []*kgate.Ticket{ticket, new(kgate.Ticket)} {
		_, err := ticket.Renew(t.Context())
		if says(t, "a ticket", err, "has no ID"); ticket.ID() != "" || ticket.State() != (kgate.TicketState{}) {
			t.Error("a ticket that was never given has an ID, or a state")
		}
	}
	var slot *kgate.Slot
	for _, s := range []*kgate.Slot{slot, new(kgate.Slot)} {
		ctx, cancel := s.Context(t.Context())
		defer cancel()
		<-s.Lost()
		if s.Release(); s.Valid() || s.Fence() != "" || !errors.Is(context.Cause(ctx), kgate.ErrLost) {
			t.Error("a slot that was never given is valid")
		}
	}
}

// panics returns what a function panics with, as an error.
func panics(f func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	f()
	return nil
}

// TestNoContext: a nil context is an error that says so.
func TestNoContext(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	var none context.Context
	_, acquire := n.Acquire(none, "p")
	_, request := n.RequestTicket(none, "p", time.Minute)
	for what, err := range map[string]error{
		"Acquire": acquire, "RequestTicket": request, "Ready": n.Ready(none), "Drain": n.Drain(none), "Shutdown": n.Shutdown(none), "SetK": n.SetK(none, "p", 1),
	} {
		says(t, what, err, "context.Background()")
	}
}

// TestTransport: of requests that Middleware has admitted and of slots of Acquire.
func TestTransport(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	fences := make(chan string, 2)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { fences <- r.Header.Get("Kgate-Fence") }))
	defer upstream.Close()
	client := http.Client{Transport: n.Transport(nil)}
	defer client.CloseIdleConnections()
	get := func(ctx context.Context) {
		want := kgate.FromContext(ctx).Fence()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL, nil)
		if err != nil {
			t.Error(err)
			return
		}
		res, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = res.Body.Close()
		if got := <-fences; got != want || !strings.HasPrefix(got, "p/") {
			t.Errorf("fence %q, want %q", got, want)
		}
	}
	n.Middleware("p")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { get(r.Context()) })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	slot := acquire(t, n)
	defer slot.Release()
	ctx, cancel := slot.Context(t.Context())
	defer cancel()
	get(ctx)
	slot.Release()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err == nil {
		_ = res.Body.Close()
	}
	if slot.Valid() || !errors.Is(err, kgate.ErrLost) {
		t.Errorf("after its release the slot is valid: %v; got %v", slot.Valid(), err)
	}
}

// slowToClose is a connection whose end takes a while.
type slowToClose struct {
	net.Conn
	closed *atomic.Bool
}

// Close implements net.Conn.
func (c slowToClose) Close() error {
	time.Sleep(200 * time.Millisecond)
	err := c.Conn.Close()
	c.closed.Store(true)
	return err
}

// TestTransportBreaksOff: when the body of an answer is closed before its end, the
// connection is closed first, so that the slot may go to the next one. Net/http's own
// Close returns before. A body that was read to its end leaves the connection to others.
func TestTransportBreaksOff(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	slot := acquire(t, n)
	defer slot.Release()
	ctx, cancel := slot.Context(t.Context())
	defer cancel()
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			var dialed atomic.Int32
			var closed atomic.Bool
			serve := httptest.NewServer
			if secure {
				serve = httptest.NewTLSServer
			}
			upstream := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "some")
				if r.URL.Path == "/more" {
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}
			}))
			defer upstream.Close()
			base := upstream.Client().Transport.(*http.Transport)
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialed.Add(1)
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return slowToClose{conn, &closed}, err
			}
			client := http.Client{Transport: n.Transport(base)}
			defer client.CloseIdleConnections()
			for _, path := range []string{"/", "/", "/more"} {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				res, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if path == "/" {
					_, _ = io.Copy(io.Discard, res.Body)
				}
				_ = res.Body.Close()
				if closed.Load() != (path == "/more") {
					t.Errorf("after the answer to %s the connection is closed: %v", path, closed.Load())
				}
			}
			if dialed.Load() != 1 {
				t.Errorf("%d connections", dialed.Load())
			}
		})
	}
}

// TestSetKReturns: when k is set, the node admits again, and by the new k.
func TestSetKReturns(t *testing.T) {
	nodes := cluster(t, 3, 1)
	for i := range 30 {
		n, k := nodes[i%3], 1+i%2*4
		if err := n.SetK(t.Context(), "p", k); err != nil {
			t.Fatal(err)
		}
		if s := n.Stats("p"); s.K != k || n.NotReady() != "" {
			t.Fatalf("k %d after it was set to %d; not ready: %q", s.K, k, n.NotReady())
		}
	}
}
