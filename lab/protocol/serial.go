package protocol

import (
	"slices"

	"github.com/kgate/kgate/lab/sim"
)

// Serial makes a protocol with at most one request at a time per node fit for
// nodes with many: further requests wait at their node, first come first served.
// A request that the protocol has taken in and that is cancelled lets its token
// go as soon as it comes, so p need not know cancels.
func Serial(h Host, nodes int, inner func(Host) Protocol) Protocol {
	s := &serial{Host: h, lines: make([]line, nodes)}
	s.Protocol = inner(s)
	return s
}

type serial struct {
	Host
	Protocol
	lines []line
}

// line is what a node has: the request that the protocol knows, and those behind.
type line struct {
	at        Request // 0: none
	cancelled bool
	granted   bool
	behind    []Request
}

// Forget drops the requests that [Serial] keeps for a node that has crashed or left.
func Forget(p Protocol, node int) {
	if s, ok := p.(*serial); ok {
		s.lines[node] = line{}
	}
}

// Acquire implements [Protocol].
func (s *serial) Acquire(node int, t Request) {
	l := &s.lines[node]
	if l.at != 0 {
		l.behind = append(l.behind, t)
		return
	}
	*l = line{at: t, behind: l.behind}
	s.Protocol.Acquire(node, t)
}

// Release implements [Protocol].
func (s *serial) Release(node int, t Request) {
	l := &s.lines[node]
	*l = line{behind: l.behind}
	s.Protocol.Release(node, t)
	if len(l.behind) > 0 {
		next := l.behind[0]
		l.behind = slices.Delete(l.behind, 0, 1)
		s.Acquire(node, next)
	}
}

// Cancel implements [Protocol].
func (s *serial) Cancel(node int, t Request) {
	l := &s.lines[node]
	if l.at == t {
		l.cancelled = true
		return
	}
	if i := slices.Index(l.behind, t); i >= 0 {
		l.behind = slices.Delete(l.behind, i, i+1)
	}
}

// Grant implements [Host] for the protocol inside.
func (s *serial) Grant(node int, t Request) {
	l := &s.lines[node]
	if !l.cancelled {
		s.Host.Grant(node, t)
		return
	}
	// Not at once: the protocol is in the middle of its step.
	l.granted = true
}

// Deliver implements [sim.Handler].
func (s *serial) Deliver(to, from int, m any) {
	s.Protocol.Deliver(to, from, m)
	s.giveBack(to)
}

// Due implements [sim.Handler].
func (s *serial) Due(node int, t sim.Timer) {
	s.Protocol.Due(node, t)
	s.giveBack(node)
}

// giveBack releases the token that has come for a cancelled request.
func (s *serial) giveBack(node int) {
	if l := &s.lines[node]; l.cancelled && l.granted {
		s.Release(node, l.at)
	}
}
