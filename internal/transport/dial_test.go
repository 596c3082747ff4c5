package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/kmutex"
)

// nowhere is an address that refuses connections.
const nowhere = "127.0.0.1:1"

// It is enough that one of the two ends can reach the other, whichever it is,
// also after the connection broke.
func TestOneWayToDial(t *testing.T) {
	for name, reachable := range map[string]kmutex.Node{"only the lower is reached": 1, "only the higher is reached": 2} {
		t.Run(name, func(t *testing.T) {
			memnet.Test(t, func(t *testing.T) {
				at1, at2 := newInOrder(100), newInOrder(100)
				t1, t2 := listen(t, Config{Handler: at1}), listen(t, Config{Handler: at2})
				target := map[kmutex.Node]*Transport{1: t1, 2: t2}[reachable]
				cut := newCutter(t, target.Addr().String(), 0)
				peers := []Peer{{Node: 1, Addr: nowhere}, {Node: 2, Addr: nowhere}}
				peers[reachable-1].Addr = cut.addr()
				setPeers(t1, 1, peers)
				setPeers(t2, 2, peers)
				sendAll(t, t1, 2, 50)
				sendAll(t, t2, 1, 50)
				if err := errors.Join(t1.flush(within(t)), t2.flush(within(t))); err != nil {
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
		})
	}
}

// cutAll breaks the connections that there are.
func (c *cutter) cutAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		reset(conn)
	}
	c.conns = nil
}

// distant is a network on which it takes a while to connect, and then to say something.
type distant struct{ *memnet.Network }

func (d distant) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	time.Sleep(rand.N(time.Millisecond))
	conn, err := d.Network.DialContext(ctx, network, address)
	return distantConn{conn}, err
}

type distantConn struct{ net.Conn }

func (c distantConn) Write(p []byte) (int, error) {
	time.Sleep(rand.N(time.Millisecond))
	return c.Conn.Write(p)
}

// When both ends dial at the same moment one connection is left, and it stays.
func TestBothDialAtOnce(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		seen := newCounter()
		c := Config{Observer: seen, limits: limits{backoffMin: time.Microsecond, backoffMax: time.Millisecond, network: distant{memnet.Of(t)}}}
		for range 100 {
			c1, c2 := c, c
			c1.Name, c2.Name = nameOf(1), nameOf(2) // each time
			t1, t2 := listen(t, c1), listen(t, c2)
			peers := []Peer{{Node: 1, Addr: t1.Addr().String()}, {Node: 2, Addr: t2.Addr().String()}}
			var wg sync.WaitGroup
			wg.Go(func() { setPeers(t1, 1, peers) })
			wg.Go(func() { setPeers(t2, 2, peers) })
			wg.Wait()
			waitUp(t, t1, t2)
			before := statesOf(t1)[0].Reconnects
			for i := range 20 {
				if err := errors.Join(t1.Send(2, "p", numbered(i)), t1.flush(within(t)), t2.Send(1, "p", numbered(i)), t2.flush(within(t))); err != nil {
					t.Fatal(err)
				}
			}
			if again := statesOf(t1)[0].Reconnects - before; again > 0 {
				t.Errorf("the link was broken %d times", again)
			}
			if err := errors.Join(t1.Close(), t2.Close()); err != nil {
				t.Error(err)
			}
		}
		if seen.count(CauseDirection) == 0 {
			t.Error("they never dial at the same moment")
		}
	})
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

// TestLinger: what nobody wants lingers from the last release on, not from an earlier one.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var ended time.Duration
		p := &process{wanted: 1, unwanted: func() { ended = time.Since(began) }}
		again := func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.wanted++
			p.release(linger)
		}
		again()
		p.mu.Lock()
		p.release(linger)
		p.mu.Unlock()
		time.Sleep(linger - time.Second)
		again()
		time.Sleep(2 * linger)
		p.mu.Lock()
		defer p.mu.Unlock()
		if want := 2*linger - time.Second; ended != want {
			t.Errorf("ended after %v, want %v", ended, want)
		}
	})
}
