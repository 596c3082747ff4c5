package membership

import (
	"sync"
	"time"

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
	*raftNode
	peers *peerClient

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

func newProber(n *raftNode, peers *peerClient) *prober {
	return &prober{raftNode: n, peers: peers, byNode: make(map[kmutex.Node]*probes)}
}

// unreachable returns the members that strong evidence is against: at least three dials in
// a row were refused or not answered; and since when these dials have failed.
func (p *prober) unreachable() map[kmutex.Node]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := make(map[kmutex.Node]time.Time)
	for node, t := range p.byNode {
		if t.failed >= probesFailed {
			gone[node] = t.since
		}
	}
	return gone
}

// follow takes in which members are in doubt, and returns whom to dial now.
func (p *prober) follow(doubtful map[kmutex.Node]time.Time, now time.Time) []kmutex.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node := range p.byNode {
		if _, still := doubtful[node]; !still {
			delete(p.byNode, node)
		}
	}
	var due []kmutex.Node
	for node := range doubtful {
		t := p.byNode[node]
		if t == nil {
			t = &probes{next: now}
			p.byNode[node] = t
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
func (p *prober) streak(node kmutex.Node) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.byNode[node]; t != nil {
		return t.streak
	}
	return -1
}

// dialed takes in what became of a dial. It reports whether the member is unreachable
// from now on.
func (p *prober) dialed(node kmutex.Node, streak int, began time.Time, failed bool) (unreachable bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.byNode[node]
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
func (p *prober) watchLinks(now time.Time, quiet []kmutex.Node) (doubts bool) {
	v := p.View()
	doubtful := p.config.Links.Down()
	for _, node := range quiet {
		if _, down := doubtful[node]; !down {
			doubtful[node] = now
		}
	}
	for _, node := range p.follow(doubtful, now) {
		m, in := v.Member(node)
		streak := p.streak(node)
		if !in {
			p.dialed(node, streak, now, false)
			continue
		}
		p.wg.Go(func() {
			if p.dialed(node, streak, now, !p.peers.reaches(p.closing, m.PeerAddr)) {
				p.machine.touch() // it may be the leader
			}
		})
	}
	return len(doubtful) > 0
}

// serverUnreachable reports strong evidence that a raft server's process is gone.
func (p *prober) serverUnreachable(id string) bool {
	v := p.View()
	for node := range p.unreachable() {
		if m, in := v.Member(node); in && m.Server == id {
			return true
		}
	}
	return false
}
