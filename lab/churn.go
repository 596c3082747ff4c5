package lab

import (
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Change is something that happens to a node.
type Change struct {
	At   time.Duration
	Node int
	Kind ChangeKind
	// again: of a node that is still joining.
	again bool
}

// ChangeKind says what happens. A change that does not apply, as the crash of a
// node that is not running, is skipped.
type ChangeKind uint8

// The kinds of changes.
const (
	// Crash stops a node for good, and closes what it has in the critical
	// section. What it sent before still arrives.
	Crash ChangeKind = iota
	// Restart begins a new life of a node that crashed at least Detect before.
	Restart
	// Leave has a node leave in order: its waiting clients give up, those in
	// the critical section finish.
	Leave
	// Join lets a node in that has not been a member, or has left.
	Join
)

// member is where a node is in its life.
type member struct {
	phase phase
	life  uint32
	since time.Duration // when it crashed
}

type phase uint8

const (
	inside phase = iota
	outside
	joining
	leaving
	crashed
)

// scheduleChanges sets the timers, and fails if the protocol does not support the configured changes.
func (r *run) scheduleChanges() error {
	_, moves := protocol.As[protocol.Moving](r.protocol)
	_, restarts := protocol.As[protocol.Restarting](r.protocol)
	for node := r.cfg.Members; node < r.cfg.Nodes; node++ {
		r.nodes[node].phase = outside
		r.Kill(node)
	}
	for i, c := range r.cfg.Changes {
		switch {
		case (c.Kind == Join || c.Kind == Leave) && !moves:
			return fmt.Errorf("lab: %s has no joins or leaves", r.cfg.Protocol.Name)
		case c.Kind == Restart && !restarts:
			return fmt.Errorf("lab: %s has no restarts", r.cfg.Protocol.Name)
		}
		r.After(sim.World, c.At, sim.Timer{Kind: timerChange, Arg: uint64(i)})
	}
	return nil
}

func (r *run) change(c Change) {
	m := &r.nodes[c.Node]
	switch c.Kind {
	case Crash:
		if m.phase != outside && m.phase != crashed {
			r.crash(c.Node)
		}
	case Restart:
		if m.phase == crashed && r.Now() >= m.since+r.cfg.Detect {
			p, _ := protocol.As[protocol.Restarting](r.protocol)
			r.enter(c.Node, inside)
			p.Restart(c.Node)
			for other := range r.nodes {
				if r.nodes[other].phase == crashed {
					r.tell(c.Node, other)
				}
			}
			r.populate(c.Node)
		}
	case Leave:
		if m.phase == inside {
			r.depart(c.Node)
		}
	case Join:
		switch {
		case m.phase == outside:
			r.enter(c.Node, joining)
			r.join(c)
		case c.again && m.phase == joining:
			r.join(c)
		}
	}
}

// rejoin is the time after which a node that is not in yet asks again: the node that it asked may have
// left.
const rejoin = time.Minute

func (r *run) join(c Change) {
	if via, ok := r.anyMember(); ok {
		p, _ := protocol.As[protocol.Moving](r.protocol)
		p.Join(c.Node, via)
		r.moved(c.Node)
	}
	if r.nodes[c.Node].phase == joining {
		again := Change{At: r.Now() + rejoin, Node: c.Node, Kind: Join, again: true}
		r.cfg.Changes = append(slices.Clip(r.cfg.Changes), again)
		r.After(sim.World, rejoin, sim.Timer{Kind: timerChange, Arg: uint64(len(r.cfg.Changes) - 1)})
	}
}

func (r *run) enter(node int, p phase) {
	r.Start(node)
	r.nodes[node].phase = p
	r.nodes[node].life++
}

func (r *run) crash(node int) {
	for _, t := range r.requestsOf(node) {
		r.forget(t)
	}
	r.Kill(node)
	protocol.Forget(r.protocol, node)
	m := &r.nodes[node]
	m.phase, m.since = crashed, r.Now()
	m.life++
	if _, ok := protocol.As[protocol.Detecting](r.protocol); !ok {
		return
	}
	for other := range r.nodes {
		after := time.Duration(r.Rand().Float64() * float64(r.cfg.Detect))
		r.After(sim.World, after, sim.Timer{Kind: timerDown, Arg: uint64(other)<<32 | uint64(node)})
	}
}

// forget ends a request whose node is gone.
func (r *run) forget(t protocol.Request) {
	if r.requests[t].granted {
		r.meter.Ended(r.Now())
	} else {
		r.meter.GaveUp(r.Now(), uint64(t)-1)
	}
	delete(r.requests, t)
}

// tell is the failure detector of a node.
func (r *run) tell(node, lost int) {
	if p := r.nodes[node].phase; p == outside || p == crashed {
		return
	}
	if p, ok := protocol.As[protocol.Detecting](r.protocol); ok && node != lost {
		p.Down(node, lost)
		r.moved(node)
	}
}

func (r *run) depart(node int) {
	m := &r.nodes[node]
	m.phase = leaving
	m.life++
	for _, t := range r.requestsOf(node) {
		if !r.requests[t].granted {
			r.forget(t)
			r.protocol.Cancel(node, t)
		}
	}
	p, _ := protocol.As[protocol.Moving](r.protocol)
	p.Leave(node)
	r.moved(node)
}

// moved looks whether a node has completed its arrival or departure.
func (r *run) moved(node int) {
	m := &r.nodes[node]
	if m.phase != joining && m.phase != leaving {
		return
	}
	p, _ := protocol.As[protocol.Moving](r.protocol)
	switch in := p.In(node); {
	case m.phase == joining && in:
		m.phase = inside
		r.populate(node)
	case m.phase == leaving && !in:
		m.phase = outside
		r.Kill(node)
		protocol.Forget(r.protocol, node)
	}
}

func (r *run) anyMember() (int, bool) {
	var all []int
	for node, m := range r.nodes {
		if m.phase == inside {
			all = append(all, node)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return all[r.Rand().IntN(len(all))], true
}

// requestsOf returns the requests of a node, oldest first.
func (r *run) requestsOf(node int) []protocol.Request {
	var all []protocol.Request
	for t, q := range r.requests {
		if q.node == node {
			all = append(all, t)
		}
	}
	slices.Sort(all)
	return all
}

// oldest returns the age of the oldest request that waits.
func (r *run) oldest() (age time.Duration) {
	for _, q := range r.requests {
		if !q.granted {
			age = max(age, r.Now()-q.since)
		}
	}
	return age
}
