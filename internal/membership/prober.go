package membership

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/peercall"
	"github.com/kgate/kgate/kmutex"
)

// How a peer is tried whose link is down: a dial every probeInterval, each with
// probeTimeout to be answered, until probesFailed in a row have failed.
const (
	probeInterval = 100 * time.Millisecond
	probesFailed  = 3
)

// prober is what this gateway knows at first hand about members that it
// cannot reach. Every gateway collects it all the time, so that a new leader can
// act at once.
type prober struct {
	mu     sync.Mutex
	byNode map[kmutex.Node]*probes
}

// probes are the dials of one member that is in doubt.
type probes struct {
	next time.Time // of the next dial
	open int       // dials that have no answer yet
	// failed dials in a row, and when the first of them began.
	failed int
	since  time.Time
	// streak is the number of the present row of dials. A dial of an earlier one does not count.
	streak int
}

func newProber() *prober { return &prober{byNode: make(map[kmutex.Node]*probes)} }

// unreachable returns the members that strong evidence is against: at least three dials in
// a row were refused or not answered; and since when these dials have failed.
func (e *prober) unreachable() map[kmutex.Node]time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	gone := make(map[kmutex.Node]time.Time)
	for node, t := range e.byNode {
		if t.failed >= probesFailed {
			gone[node] = t.since
		}
	}
	return gone
}

// follow takes in which members are in doubt, and returns whom to dial now.
func (e *prober) follow(doubtful map[kmutex.Node]time.Time, now time.Time) []kmutex.Node {
	e.mu.Lock()
	defer e.mu.Unlock()
	for node := range e.byNode {
		if _, still := doubtful[node]; !still {
			delete(e.byNode, node)
		}
	}
	var due []kmutex.Node
	for node := range doubtful {
		t := e.byNode[node]
		if t == nil {
			t = &probes{next: now}
			e.byNode[node] = t
		}
		if now.Before(t.next) || t.open >= probesFailed {
			continue
		}
		t.next = now.Add(probeInterval)
		t.open++
		due = append(due, node)
	}
	return due
}

// streak returns the number of the row to which a dial belongs that begins now.
func (e *prober) streak(node kmutex.Node) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.byNode[node]; t != nil {
		return t.streak
	}
	return -1
}

// dialed takes in what became of a dial. It reports whether the member is unreachable
// from now on.
func (e *prober) dialed(node kmutex.Node, streak int, began time.Time, failed bool) (unreachable bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.byNode[node]
	if t == nil {
		return false // there is no doubt any more
	}
	t.open--
	switch {
	case !failed:
		t.failed = 0
		t.streak++
	case streak != t.streak:
	default:
		if t.failed == 0 {
			t.since = began
		}
		t.failed++
	}
	return failed && t.failed == probesFailed
}

// watchLinks dials the members to which the link is down, and as the leader those
// that have been silent for a while: a link needs half a lease to notice that a host
// is gone. It reports whether there are any.
func (c *Cluster) watchLinks(now time.Time) (doubts bool) {
	if c.config.Links == nil {
		return false
	}
	v := c.View()
	doubtful := c.config.Links.Down()
	for _, node := range c.leases.quiet() {
		if _, down := doubtful[node]; !down {
			doubtful[node] = now
		}
	}
	for _, node := range c.prober.follow(doubtful, now) {
		m, in := v.Member(node)
		streak := c.prober.streak(node)
		if !in {
			c.prober.dialed(node, streak, now, false)
			continue
		}
		c.wg.Go(func() {
			if c.prober.dialed(node, streak, now, !c.reaches(c.closing, m.PeerAddr)) {
				c.machine.touch() // it may be the leader
			}
		})
	}
	return len(doubtful) > 0
}

// reaches dials a peer port. Only a dial that was refused, not answered or had
// no way failed: any other answer comes from somebody who lives.
func (c *Cluster) reaches(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout(c.lease()))
	defer cancel()
	conn, err := c.config.Control.Dial(ctx, addr)
	if err == nil {
		_ = conn.Close()
		return true
	}
	for _, dead := range []error{
		syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN,
		os.ErrDeadlineExceeded, context.DeadlineExceeded,
	} {
		if errors.Is(err, dead) {
			return false
		}
	}
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

// reach is the answer to the question whom a gateway reaches.
type reach struct {
	// Unreached names those that gossip sees alive and that cannot be dialed.
	Unreached []string `json:"unreached"`
}

// unreached tries everybody whom gossip sees alive, or only those named, and returns
// those that cannot be dialed. One who asks to be let in must reach all members.
func (c *Cluster) unreached(ctx context.Context, of ...string) []string {
	peers := alive(c.config.Discovery.Members())
	var mu sync.Mutex
	names := []string{}
	peercall.Each(peers, asksAtOnce, func(_ int, p serfring.Member) {
		if p.Name == c.config.Name || len(of) > 0 && !slices.Contains(of, p.Name) || c.reaches(ctx, p.PeerAddr) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		names = append(names, p.Name)
	})
	return names
}

// unreachedFrom asks a gateway that wants to come in whom it does not reach.
func (c *Cluster) unreachedFrom(p serfring.Member) (names []string, ok bool) {
	if p.Name == c.config.Name {
		return c.unreached(c.closing), true
	}
	ctx, cancel := context.WithTimeout(c.closing, 2*c.config.CallTimeout)
	defer cancel()
	var r reach
	err := c.call(ctx, "GET", p.PeerAddr, pathReach, nil, &r)
	return r.Unreached, err == nil
}
