package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// numbered is the n-th message of a test.
func numbered(n int) kmutex.Message {
	return kmutex.Message{Kind: kmutex.KindLocate, Epoch: 1, Number: uint64(n), Holder: 1}
}

// inOrder is a handler that wants messages 1, 2, ..., want from each sender.
type inOrder struct {
	want int
	done chan struct{} // closed when the last is there
	last atomic.Int64
	bad  atomic.Pointer[string]
}

func newInOrder(want int) *inOrder { return &inOrder{want: want, done: make(chan struct{})} }

func (h *inOrder) Deliver(from kmutex.Node, pool string, m kmutex.Message) error {
	n := h.last.Add(1)
	if m.Number != uint64(n) || pool != "downloads" {
		text := fmt.Sprintf("message %d of %q from %d, want %d", m.Number, pool, from, n)
		h.bad.CompareAndSwap(nil, &text)
	}
	if int(n) == h.want {
		close(h.done)
	}
	return nil
}

// await waits for the last one, for as long as others come.
func (h *inOrder) await(t *testing.T, name string) {
	t.Helper()
	for last := int64(-1); last != h.last.Load(); {
		last = h.last.Load()
		select {
		case <-h.done:
			return
		case <-time.After(patience):
		}
	}
	t.Fatalf("%s: nothing has come for %v behind message %d", name, patience, h.last.Load())
}

func (h *inOrder) check(t *testing.T, name string) {
	t.Helper()
	if bad := h.bad.Load(); bad != nil {
		t.Errorf("%s: %s", name, *bad)
	}
	if n := h.last.Load(); int(n) != h.want {
		t.Errorf("%s: %d messages delivered, want %d", name, n, h.want)
	}
}

// sendAll sends n messages, as fast as the queue takes them.
func sendAll(t *testing.T, from *Transport, to kmutex.Node, n int) {
	for i := 1; i <= n; {
		switch err := from.Send(to, "downloads", numbered(i)); {
		case err == nil:
			i++
		case errors.Is(err, wire.ErrFull):
			time.Sleep(100 * time.Microsecond) // pacing, not synchronisation
		default:
			t.Errorf("send: %v", err)
			return
		}
	}
}

// cutter forwards connections to a target and cuts each after a random number
// of bytes, wherever that is: in a hello, in a frame, with a reset, or so that
// only one end notices.
type cutter struct {
	listener net.Listener
	dialer   memnet.Dialer
	target   string
	maxBytes int
	cuts     atomic.Int64
	holes    [2]atomic.Bool // long packets get lost: to the target, from it
	accepted atomic.Int64

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
	wg     sync.WaitGroup
}

func newCutter(tb testing.TB, target string, maxBytes int) *cutter {
	tb.Helper()
	c := &cutter{listener: memnet.Listen(tb), dialer: memnet.DialerOf(tb), target: target, maxBytes: maxBytes}
	c.wg.Go(c.run)
	tb.Cleanup(c.close)
	return c
}

func (c *cutter) addr() string { return c.listener.Addr().String() }

func (c *cutter) close() {
	_ = c.listener.Close()
	c.mu.Lock()
	c.closed = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}

func (c *cutter) keep(conns ...net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conns...)
	if c.closed {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
}

func (c *cutter) run() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := c.dialer.DialContext(context.Background(), "tcp", c.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		c.keep(near, far)
		c.accepted.Add(1)
		mode := rand.IntN(3)
		c.wg.Go(func() { c.forward(near, far, mode, &c.holes[0]) })
		c.wg.Go(func() { c.forward(far, near, mode, &c.holes[1]) })
	}
}

func (c *cutter) forward(from, to net.Conn, mode int, hole *atomic.Bool) {
	if c.maxBytes == 0 {
		pass(from, to, hole)
		_ = from.Close()
		_ = to.Close()
		return
	}
	if _, err := io.CopyN(to, from, rand.Int64N(int64(c.maxBytes))); err == nil {
		c.cuts.Add(1)
	}
	switch mode {
	case 0:
		_ = from.Close()
		_ = to.Close()
	case 1:
		reset(from)
		_ = to.Close()
	case 2: // the other end believes that the connection lives
		_ = from.Close()
	}
}

func reset(conn net.Conn) {
	_ = conn.(interface{ SetLinger(sec int) error }).SetLinger(0)
	_ = conn.Close()
}

// pass copies until either end is closed, or until it has lost something long.
func pass(from, to net.Conn, hole *atomic.Bool) {
	const long = 600
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if n > long && hole.Load() {
			_, _ = io.Copy(io.Discard, from) // all that follows waits for what is lost
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func inRealTime(t *testing.T, test func(*testing.T)) { test(t) }

// TestOrderAcrossCuts: both ends send at once while connections are cut at
// random bytes; every message arrives once, in order.
func TestOrderAcrossCuts(t *testing.T) {
	pki := newPKI(t)
	for name, tc := range map[string]struct {
		config   *tls.Config
		n        int
		delay    time.Duration
		maxBytes int
		in       func(*testing.T, func(*testing.T))
	}{
		"plaintext":     {n: 20_000, maxBytes: 20_000, in: inRealTime},
		"short-lived":   {n: 1000, maxBytes: 10_000, in: memnet.Test}, // many end within the padding
		"tls":           {n: 20_000, config: pki.peer(t), maxBytes: 40_000, in: inRealTime},
		"delayed links": {n: 20_000, delay: time.Millisecond, maxBytes: 20_000, in: memnet.Test},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in(t, func(t *testing.T) {
				n := tc.n
				if testing.Short() {
					n /= 4
				}
				at1, at2 := newInOrder(n), newInOrder(n)
				config := Config{
					TLS: tc.config, PingInterval: 60 * time.Millisecond,
					limits: limits{
						queueMessages: 500, backoffMin: time.Millisecond, backoffMax: 2 * time.Millisecond, dialTimeout: 100 * time.Millisecond,
					},
				}
				if tc.delay > 0 {
					config.slow = func(s *session) io.Writer { return delayed(s, tc.delay) }
				}
				c1, c2 := config, config
				seen := newCounter()
				c1.Handler, c2.Handler, c1.Observer = at1, at2, seen
				t1, t2 := listen(t, c1), listen(t, c2)
				cut := newCutter(t, t2.Addr().String(), tc.maxBytes)
				setPeers(t1, 1, []Peer{{Node: 2, Addr: cut.addr()}})
				setPeers(t2, 2, []Peer{{Node: 1}})
				var wg sync.WaitGroup
				wg.Go(func() { sendAll(t, t1, 2, n) })
				wg.Go(func() { sendAll(t, t2, 1, n) })
				wg.Wait()
				at1.await(t, "at 1")
				at2.await(t, "at 2")
				if err := errors.Join(t1.flush(within(t)), t2.flush(within(t))); err != nil {
					t.Error(err)
				}
				at1.check(t, "at 1")
				at2.check(t, "at 2")
				if cut.cuts.Load() < 10 {
					t.Errorf("only %d cuts", cut.cuts.Load())
				}
				for _, cause := range []Cause{CauseFrame, CauseProtocol, CauseSequence, CauseOversized} {
					if k := seen.count(cause); k > 0 {
						t.Errorf("%d times %s", k, cause)
					}
				}
				t.Logf("%d cuts, %d reconnects", cut.cuts.Load(), statesOf(t1)[0].Reconnects)
			})
		})
	}
}

// TestManySenders: Send from many goroutines at once, from within Deliver too.
func TestManySenders(t *testing.T) {
	const senders, each = 8, 2000
	var got atomic.Int64
	done := make(chan struct{})
	var t1, t2 *Transport
	t1 = listen(t, Config{Handler: deliverFunc(func(kmutex.Node, string, kmutex.Message) error {
		if got.Add(1) == senders*each {
			close(done)
		}
		return nil
	})})
	var mu sync.Mutex // as a pool's
	t2 = listen(t, Config{Handler: deliverFunc(func(from kmutex.Node, pool string, m kmutex.Message) error {
		mu.Lock()
		defer mu.Unlock()
		return t2.Send(from, pool, m)
	})})
	join(t1, t2)
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for i := range each {
				if err := t1.Send(2, "p", numbered(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wait(t, "all messages back", done)
}

func TestSendRefuses(t *testing.T) {
	seen := newCounter()
	one := listen(t, Config{Observer: seen, limits: limits{queueMessages: 3}})
	if err := one.Send(2, "p", numbered(1)); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("before SetPeers: %v", err)
	}
	setPeers(one, 1, []Peer{{Node: 1}, {Node: 0}, {Node: 2, Addr: "127.0.0.1:1"}})
	for _, node := range []kmutex.Node{0, 1, 3} {
		if err := one.Send(node, "p", numbered(1)); !errors.Is(err, ErrUnknownPeer) {
			t.Errorf("to node %d: %v", node, err)
		}
	}
	if err := one.Send(2, "", numbered(1)); !errors.Is(err, errMessage) {
		t.Errorf("of no pool: %v", err)
	}
	for i := range 5 {
		if err := one.Send(2, "p", numbered(i)); (i >= 3) != errors.Is(err, wire.ErrFull) {
			t.Errorf("message %d of 3: %v", i+1, err)
		}
	}
	if n := seen.count(CauseOverflow); n != 2 {
		t.Errorf("%d overflows counted, want 2", n)
	}
	if s := statesOf(one); len(s) != 1 || s[0].Queued != 3 || s[0].Up {
		t.Errorf("links = %+v, want one that is down with 3 queued", s)
	}
	setPeers(one, 0, []Peer{{Node: 2}})
	if err := one.Send(2, "p", numbered(1)); !errors.Is(err, ErrUnknownPeer) || len(statesOf(one)) != 0 {
		t.Errorf("as no member: %v", err)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if err := one.Send(2, "p", numbered(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Messages wait for a link that is not up yet, and a full queue works again
// once it is.
func TestQueueWaitsForPeer(t *testing.T) {
	at2 := newInOrder(100)
	t1, t2 := listen(t, Config{limits: limits{queueMessages: 50}}), listen(t, Config{Handler: at2})
	peers := []Peer{{Node: 1, Addr: t1.Addr().String()}, {Node: 2, Addr: t2.Addr().String()}}
	setPeers(t1, 1, peers)
	for i := 1; i <= 50; i++ {
		if err := t1.Send(2, "downloads", numbered(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := t1.Send(2, "downloads", numbered(51)); !errors.Is(err, wire.ErrFull) {
		t.Fatalf("to a full queue: %v", err)
	}
	setPeers(t2, 2, peers) // the later view
	if err := t1.flush(within(t)); err != nil {
		t.Fatal(err)
	}
	for i := 51; i <= 100; i++ {
		if err := t1.Send(2, "downloads", numbered(i)); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "all messages", at2.done)
	at2.check(t, "at 2")
}

// Acknowledgements come without pings and without messages the other way: by
// number and bytes, and when Flush asks for them.
func TestAcknowledgements(t *testing.T) {
	const ackMessages, ackBytes = 256, 256 << 10 // of package wire
	const n = 5*ackMessages + 1
	at2 := newInOrder(n - 1)
	t1 := listen(t, Config{PingInterval: time.Hour, limits: limits{queueMessages: 2 * ackMessages}})
	t2 := listen(t, Config{PingInterval: time.Hour, Handler: deliverFunc(func(from kmutex.Node, pool string, m kmutex.Message) error {
		if m.Kind == kmutex.KindBaton {
			return nil
		}
		return at2.Deliver(from, pool, m)
	})})
	join(t1, t2)
	// The pings of the beginning are over.
	eventually(t, "round-trip times", func() bool {
		return t1.MeanRTT() > 0 && t2.MeanRTT() > 0
	})
	go func() { // ends when the transport is closed, at the latest
		for i := 1; i < n; {
			if err := t1.Send(2, "downloads", numbered(i)); err == nil {
				i++
			} else if !errors.Is(err, wire.ErrFull) {
				return
			}
		}
	}()
	wait(t, "more messages than the queue takes", at2.done)
	if err := t1.flush(within(t)); err != nil {
		t.Error(err)
	}
	// One alone is too few for an acknowledgement by number.
	if err := errors.Join(t1.Send(2, "downloads", numbered(n)), t1.flush(within(t))); err != nil {
		t.Error(err)
	}
	if s := statesOf(t1)[0]; s.Queued != 0 {
		t.Errorf("%d messages queued after Flush", s.Queued)
	}
	long := numbered(1)
	long.Kind, long.Holder, long.Tails = kmutex.KindBaton, 0, make([]kmutex.Seat, maxTokens)
	for range 2 * ackBytes / maxTokens {
		if err := t1.Send(2, "downloads", long); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "acknowledgement of many bytes", func() bool { return statesOf(t1)[0].Queued < 2*ackBytes/maxTokens })
}

// A longer message than the reader's buffer or a batch takes its own way.
func TestLongMessages(t *testing.T) {
	var got atomic.Int64
	t1 := listen(t, Config{})
	t2 := listen(t, Config{Handler: deliverFunc(func(_ kmutex.Node, _ string, m kmutex.Message) error {
		if want := int(got.Add(1)); int(m.Number) != want || want%2 == 0 && len(m.Tails) != maxTokens {
			return fmt.Errorf("message %d with %d tails, want %d", m.Number, len(m.Tails), want)
		}
		return nil
	}), Observer: newCounter()})
	join(t1, t2)
	long := kmutex.Message{Kind: kmutex.KindBaton, Epoch: 1, Tails: make([]kmutex.Seat, maxTokens)}
	for i := range long.Tails {
		long.Tails[i] = kmutex.Seat{Node: kmutex.Node(i + 1), Serial: 1 << 40}
	}
	for i := 1; i <= 20; i++ {
		m := numbered(i)
		if i%2 == 0 {
			m = long
			m.Number = uint64(i)
		}
		if err := t1.Send(2, "p", m); err != nil {
			t.Fatal(err)
		}
	}
	if err := t1.flush(within(t)); err != nil {
		t.Fatal(err)
	}
	seen := t2.config.Observer.(*counter)
	for _, cause := range Causes() { // both ends may have dialled: then one connection goes
		if n := seen.count(cause); n > 0 {
			t.Errorf("%d refused: %s", n, cause)
		}
	}
	if got.Load() != 20 {
		t.Errorf("%d messages", got.Load())
	}
}

// TestSetPeersKeepsLinks: a view that adds and removes others does not disturb
// a link that stays.
func TestSetPeersKeepsLinks(t *testing.T) {
	const n = 5000
	at2 := newInOrder(n)
	t1, t2, t3 := listen(t, Config{}), listen(t, Config{Handler: at2}), listen(t, Config{})
	join(t1, t2)
	waitUp(t, t1, t2)
	up := statesOf(t1)[0].Since
	var wg sync.WaitGroup
	wg.Go(func() { sendAll(t, t1, 2, n) })
	for range 10 {
		join(t1, t2, t3)
		waitUp(t, t1, t2, t3)
		join(t1, t2)
		setPeers(t3, 0, nil)
	}
	wg.Wait()
	wait(t, "all messages", at2.done)
	at2.check(t, "at 2")
	if s := statesOf(t1); len(s) != 1 || !s[0].Up || s[0].Reconnects != 0 || !s[0].Since.Equal(up) {
		t.Errorf("links = %+v, want one, up since %v", s, up)
	}
}

// A peer that restarts is a new node at the same address: what was queued for
// the old one is dropped, numbers start over, and nothing of the old one's
// reaches the new one.
func TestPeerReplaced(t *testing.T) {
	t1 := listen(t, Config{})
	peers := func(node kmutex.Node, addr string) []Peer {
		return []Peer{{Node: 1, Addr: t1.Addr().String()}, {Node: node, Addr: addr}}
	}
	first := newInOrder(10)
	t2 := listen(t, Config{Handler: first})
	addr := t2.Addr().String()
	setPeers(t1, 1, peers(2, addr))
	setPeers(t2, 2, peers(2, addr))
	sendAll(t, t1, 2, 10)
	wait(t, "messages of the first incarnation", first.done)
	if err := t2.Close(); err != nil {
		t.Fatal(err)
	}
	sendAll(t, t1, 2, 5) // lost with the incarnation

	again := newInOrder(10)
	t3, err := Listen(Config{Name: "gw-7", Listen: addr, Handler: again})
	if err != nil {
		t.Fatal(err)
	}
	defer t3.Close()
	setPeers(t3, 7, peers(7, addr))
	setPeers(t1, 1, peers(7, addr))
	if err := t1.Send(2, "downloads", numbered(1)); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("to the old incarnation: %v", err)
	}
	sendAll(t, t1, 7, 10)
	wait(t, "messages of the second incarnation", again.done)
	again.check(t, "second incarnation")
	if s := statesOf(t1); len(s) != 1 || s[0].Node != 7 {
		t.Errorf("links = %+v", s)
	}
}

// An end that has forgotten the other cannot keep the promise: the link stays
// down, and says why.
func TestForgottenPeer(t *testing.T) {
	seen := newCounter()
	t1, t2 := listen(t, Config{Observer: seen}), listen(t, Config{Observer: seen})
	join(t1, t2)
	sendAll(t, t1, 2, 5)
	sendAll(t, t2, 1, 5)
	if err := errors.Join(t1.flush(within(t)), t2.flush(within(t))); err != nil {
		t.Fatal(err)
	}
	setPeers(t2, 2, nil) // forgets 1
	join(t1, t2)
	eventually(t, "the disagreement is counted", func() bool { return seen.count(CauseSequence) > 0 })
	eventually(t, "the disagreement is shown", func() bool {
		s := statesOf(t1)[0]
		return !s.Up && s.Err != ""
	})
}

// A new address counts from the next attempt to dial.
func TestAddressChanges(t *testing.T) {
	at2 := newInOrder(1)
	t1, t2 := listen(t, Config{}), listen(t, Config{Handler: at2})
	setPeers(t2, 2, []Peer{{Node: 1}})
	setPeers(t1, 1, []Peer{{Node: 2, Addr: "127.0.0.1:1", Name: "gw-2"}})
	eventually(t, "a failure", func() bool { return statesOf(t1)[0].Failures > 0 })
	sendAll(t, t1, 2, 1)
	setPeers(t1, 1, []Peer{{Node: 2, Addr: t2.Addr().String(), Name: "gw-2"}})
	wait(t, "the message", at2.done)
	waitUp(t, t1)
	if s := statesOf(t1)[0]; s.Name != "gw-2" || s.Err != "" {
		t.Errorf("link = %+v", s)
	}
}

// TestNewIncarnationOfSelf: with a new number of its own a gateway has new
// links only.
func TestNewIncarnationOfSelf(t *testing.T) {
	at2 := newInOrder(3)
	t1, t2 := listen(t, Config{}), listen(t, Config{Handler: at2})
	join(t1, t2)
	waitUp(t, t1, t2)
	setPeers(t1, 9, []Peer{{Node: 2, Addr: t2.Addr().String()}})
	setPeers(t2, 2, []Peer{{Node: 9, Addr: t1.Addr().String(), Name: "gw-1"}})
	sendAll(t, t1, 2, 3)
	wait(t, "messages of the new incarnation", at2.done)
	if links := statesOf(t2); len(links) != 1 || links[0].Node != 9 {
		t.Errorf("links to %+v", links)
	}
}

// Errors of the handler are counted and change nothing.
func TestHandlerErrors(t *testing.T) {
	seen := newCounter()
	var got atomic.Int64
	t1 := listen(t, Config{})
	t2 := listen(t, Config{Observer: seen, Handler: deliverFunc(func(kmutex.Node, string, kmutex.Message) error {
		if got.Add(1)%2 == 0 {
			return errors.New("unknown pool")
		}
		return nil
	})})
	join(t1, t2)
	sendAll(t, t1, 2, 100)
	if err := t1.flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if got.Load() != 100 || seen.count(CauseHandler) != 50 || statesOf(t1)[0].Reconnects != 0 {
		t.Errorf("%d delivered, %d errors, link %+v", got.Load(), seen.count(CauseHandler), statesOf(t1)[0])
	}
}

// The delay of a slow network shows in the round-trip time, in both directions, and does
// not slow down a stream of messages.
func TestDelay(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		const n, there, back = 2000, 10 * time.Millisecond, 20 * time.Millisecond
		at2 := newInOrder(n)
		slow := func(d time.Duration) limits {
			return limits{slow: func(s *session) io.Writer { return delayed(s, d) }}
		}
		t1, t2 := listen(t, Config{limits: slow(there)}), listen(t, Config{limits: slow(back), Handler: at2})
		join(t1, t2)
		eventually(t, "round-trip times", func() bool {
			return t1.MeanRTT() > 0 && t2.MeanRTT() > 0
		})
		for _, tr := range []*Transport{t1, t2} {
			if rtt := tr.MeanRTT(); rtt != there+back {
				t.Errorf("RTT = %v, want %v", rtt, there+back)
			}
		}
		start := time.Now()
		sendAll(t, t1, 2, n)
		wait(t, "all messages", at2.done)
		at2.check(t, "at 2")
		if took := time.Since(start); took != there {
			t.Errorf("%d messages took %v", n, took)
		}
	})
}

// Close in the middle of traffic, with links that come and go.
func TestCloseUnderLoad(t *testing.T) {
	for range 5 {
		few := limits{queueMessages: 1000}
		t1, t2, t3 := listen(t, Config{Name: "gw-1", limits: few}), listen(t, Config{Name: "gw-2"}), listen(t, Config{Name: "gw-3"})
		join(t1, t2, t3)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for _, to := range []kmutex.Node{2, 3, 4} {
			wg.Go(func() {
				for i := 1; ; i++ {
					select {
					case <-stop:
						return
					default:
						if t1.Send(to, "p", numbered(i)) != nil { // to nobody, or it is full
							time.Sleep(100 * time.Microsecond)
						}
					}
				}
			})
		}
		eventually(t, "traffic", func() bool { return statesOf(t1)[0].RTT > 0 })
		for _, tr := range []*Transport{t2, t1, t3} {
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		}
		close(stop)
		wg.Wait()
	}
}
