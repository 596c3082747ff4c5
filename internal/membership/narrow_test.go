package membership

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// long is from how many bytes on a packet gets lost on a narrow path.
const long = 300

// narrowConn is one that a gateway has opened.
type narrowConn struct {
	net.Conn
	n        *network
	from, to string
	stuck    [2]atomic.Bool // what it sends, and what it receives
}

func (c *narrowConn) loses(way int, from, to string, size int) bool {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if size >= long && c.n.narrow[[2]string{from, to}] {
		c.stuck[way].Store(true)
	}
	return c.stuck[way].Load()
}

func (c *narrowConn) Write(b []byte) (int, error) {
	if c.loses(0, c.from, c.to, len(b)) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *narrowConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.loses(1, c.to, c.from, n) {
			return n, err
		}
	}
}

// narrows loses what is long from one gateway to others.
func (n *network) narrows(from *gateway, to []*gateway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range to {
		n.narrow[[2]string{from.peerAddr, g.peerAddr}] = true
	}
}

// A leader whose entries do not reach the others, though its heartbeats do, leads no more
// after a while.
func TestEntriesOfTheLeaderAreLost(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		settle(t, gateways)
		leads := leaderOf(t, gateways)
		others := without(gateways, leads)
		n.narrows(leads, others)
		began := time.Now()
		define(t, others[0], strings.Repeat("long", 15), 3)
		took := time.Since(began)
		t.Logf("agreed after %v", took)
		if took > 5*time.Second {
			t.Errorf("agreed after %v", took)
		}
		if leaderOf(t, gateways) == leads {
			t.Error("it leads still")
		}
		n.heal()
		settle(t, gateways)
	})
}

// A gateway that could come in, but for a path that loses long packets, stays out: to a
// member and from one.
func TestNarrowPathKeepsOut(t *testing.T) {
	for _, comes := range []bool{true, false} {
		t.Run(fmt.Sprint("from the newcomer ", comes), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n network
				gateways := n.three(t, nil)
				settle(t, gateways)
				odd, one := followerOf(t, gateways), leaderOf(t, gateways)
				if comes {
					n.narrows(odd, []*gateway{one})
				} else {
					n.narrows(one, []*gateway{odd})
				}
				lost := odd.stands()
				if err := one.Suspend(t.Context(), odd.name); err != nil {
					t.Fatal(err)
				}
				suspended(t, without(gateways, odd), lost) // what tells odd of it may be long
				until(t, "it says so", func() bool { return slices.Contains(odd.peers.unreached(t.Context()), one.name) })
				time.Sleep(2 * one.View().Lease)
				if _, in := one.View().Named(odd.name); in {
					t.Error("it is in")
				}
				n.heal()
				settle(t, gateways)
			})
		})
	}
}
