package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// nowhere is an address that refuses connections.
const nowhere = "127.0.0.1:1"

// It is enough that one of the two ends can reach the other, whichever it is,
// also after the connection broke.
func TestOneWayToDial(t *testing.T) {
	for name, reachable := range map[string]kmutex.Node{"only the lower is reached": 1, "only the higher is reached": 2} {
		t.Run(name, func(t *testing.T) {
			at1, at2 := newInOrder(100), newInOrder(100)
			t1, t2 := listen(t, Config{Handler: at1}), listen(t, Config{Handler: at2})
			target := map[kmutex.Node]*Transport{1: t1, 2: t2}[reachable]
			cut := newCutter(t, target.Addr().String(), 0)
			peers := []Peer{{Node: 1, Addr: nowhere}, {Node: 2, Addr: nowhere}}
			peers[reachable-1].Addr = cut.addr()
			t1.SetPeers(1, peers)
			t2.SetPeers(2, peers)
			sendAll(t, t1, 2, 50)
			sendAll(t, t2, 1, 50)
			if err := errors.Join(t1.Flush(within(t)), t2.Flush(within(t))); err != nil {
				t.Fatal(err)
			}
			cut.cutAll()
			for i := 51; i <= 100; i++ {
				if err := errors.Join(t1.Send(2, "downloads", numbered(i)), t2.Send(1, "downloads", numbered(i))); err != nil {
					t.Fatal(err)
				}
			}
			wait(t, "all at 1", at1.done)
			wait(t, "all at 2", at2.done)
			at1.check(t, "at 1")
			at2.check(t, "at 2")
		})
	}
}

// cutAll breaks the connections that there are.
func (c *cutter) cutAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	c.conns = nil
}

// When both ends dial at the same moment one connection is left, and it stays.
func TestBothDialAtOnce(t *testing.T) {
	c := Config{limits: limits{backoffMin: time.Microsecond, backoffMax: time.Millisecond}}
	for range 30 {
		t1, t2 := listen(t, c), listen(t, c)
		peers := []Peer{{Node: 1, Addr: t1.Addr().String()}, {Node: 2, Addr: t2.Addr().String()}}
		var wg sync.WaitGroup
		wg.Go(func() { t1.SetPeers(1, peers) })
		wg.Go(func() { t2.SetPeers(2, peers) })
		wg.Wait()
		waitUp(t, t1, t2)
		before := t1.Links()[0].Reconnects
		for i := range 20 {
			if err := errors.Join(t1.Send(2, "p", numbered(i)), t1.Flush(within(t)), t2.Send(1, "p", numbered(i)), t2.Flush(within(t))); err != nil {
				t.Fatal(err)
			}
		}
		if again := t1.Links()[0].Reconnects - before; again > 3 {
			t.Errorf("the link was broken %d times", again)
		}
		if err := errors.Join(t1.Close(), t2.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A connection of the higher node does not take the place of one that there is.
func TestHigherNodeDoesNotReplace(t *testing.T) {
	seen := newCounter()
	t2, t3 := listen(t, Config{Observer: seen}), listen(t, Config{})
	t2.SetPeers(2, []Peer{{Node: 3, Addr: t3.Addr().String()}})
	t3.SetPeers(3, []Peer{{Node: 2, Addr: t2.Addr().String()}})
	waitUp(t, t2, t3)
	conn := plain(t, t2)
	if _, err := conn.Write(hello{from: 3, to: 2}.append(appendPreamble(nil, streamLink))); err != nil {
		t.Fatal(err)
	}
	if got, want := closed(t, conn), answerOf(statusDirection); string(got) != string(want) {
		t.Errorf("answered %q, want %q", got, want)
	}
	eventually(t, "it is counted", func() bool { return seen.count(CauseDirection) == 1 })
	if s := t2.Links()[0]; !s.Up || s.Reconnects != 0 {
		t.Errorf("link = %+v", s)
	}
}

// The pauses between attempts grow, also where each attempt takes long before it fails,
// and start over after a connection that held.
func TestBackoff(t *testing.T) {
	const least, most = 10 * time.Millisecond, time.Second
	b := backoff{min: least, max: most}
	for i, c := range []struct {
		took time.Duration
		err  error
		want time.Duration // at most, and at least half of it
	}{
		{2 * most, errRefused, least},
		{2 * most, errRefused, 2 * least},
		{2 * most, errRefused, 4 * least},
		{0, nil, 8 * least}, // something keeps breaking it
		{most, nil, least},
		{0, errRefused, 2 * least},
	} {
		if got := b.after(c.took, c.err); got < c.want/2 || got > c.want {
			t.Errorf("attempt %d: a pause of %v, want %v to %v", i, got, c.want/2, c.want)
		}
	}
	for range 10 {
		b.after(2*most, errRefused)
	}
	if got := b.after(2*most, errRefused); got < most/2 || got > most {
		t.Errorf("a pause of %v, want %v to %v", got, most/2, most)
	}
}

// While a handler blocks, a peer that connects again and again has one connection waiting
// for its end, not each of them, and that one not for ever.
func TestReconnectsWhileAHandlerBlocks(t *testing.T) {
	blocked, release := make(chan struct{}), make(chan struct{})
	victim := listen(t, Config{limits: limits{handshakeTimeout: time.Second}, Handler: deliverFunc(func(kmutex.Node, string, kmutex.Message) error {
		close(blocked)
		<-release
		return nil
	})})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	victim.SetPeers(3, []Peer{{Node: 2}})
	first := rawLink(t, victim)
	m := numbered(1)
	frame, err := appendMessage(nil, 1, "p", &m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Write(frame); err != nil {
		t.Fatal(err)
	}
	wait(t, "the handler blocks", blocked)
	for range 20 {
		conn := plain(t, victim)
		if _, err := conn.Write(hello{from: 2, to: 3}.append(appendPreamble(nil, streamLink))); err != nil {
			t.Fatal(err)
		}
		defer closed(t, conn)
	}
	eventually(t, "no connection waits any more", func() bool { return victim.Links()[0].Node == 2 && victim.peers.Load().links[2].current() == nil })
	free()
	eventually(t, "the link works again", func() bool {
		conn := plain(t, victim)
		if _, err := conn.Write(hello{from: 2, to: 3}.append(appendPreamble(nil, streamLink))); err != nil {
			return false
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		return readAnswer(conn) == nil
	})
}

// A Flush that is given up leaves nothing behind.
func TestFlushGivenUp(t *testing.T) {
	t1 := listen(t, Config{})
	t1.SetPeers(1, []Peer{{Node: 2, Addr: nowhere}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sendAll(t, t1, 2, 1)
	for range 3 {
		if err := t1.Flush(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	l := t1.peers.Load().links[2]
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiters) > 0 {
		t.Errorf("%d still wait", len(l.waiters))
	}
}
