package transport

import (
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
	c := Config{BackoffMin: time.Microsecond, BackoffMax: time.Millisecond}
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
	if got, want := closed(t, conn), appendAnswer(nil, statusDirection); string(got) != string(want) {
		t.Errorf("answered %q, want %q", got, want)
	}
	eventually(t, "it is counted", func() bool { return seen.count(CauseDirection) == 1 })
	if s := t2.Links()[0]; !s.Up || s.Reconnects != 0 {
		t.Errorf("link = %+v", s)
	}
}
