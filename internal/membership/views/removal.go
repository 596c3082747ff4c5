package views

import (
	"maps"
	"slices"
	"strings"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// Stopped is the Reason of a member that left, with nothing in flight.
const Stopped = "it was stopped in order"

// ByOperator begins the Reason of a member that people took out.
const ByOperator = "an operator took it out"

// TakenOut reports that people took it out: nobody waits for it.
func (l Lost) TakenOut() bool { return strings.HasPrefix(l.Reason, ByOperator) }

// remove takes a member out that left with nothing in flight. What its tickets
// held outlives it, so it has a successor like any other.
func (s *state) remove(index uint64, c Remove) bool {
	if !s.has(c.Node) {
		return false
	}
	moved := s.lose(index, c.Node, false, Stopped)
	s.findSuccessors()
	s.beginEpochs(index, moved)
	return true
}

// suspend takes members out that may still have requests in flight: their
// tokens are owed. One that is lost already and that people take out is only noted.
func (s *state) suspend(index uint64, c Suspend) bool {
	moved := make(pools)
	changed := false
	for i, node := range c.Nodes {
		if s.has(node) {
			maps.Copy(moved, s.lose(index, node, true, c.reason(i)))
			changed = true
		} else if s.noteTakenOut(node, c.reason(i)) {
			changed = true
		}
	}
	s.findSuccessors()
	s.beginEpochs(index, moved)
	return changed
}

// noteTakenOut notes that people took a lost member out.
func (s *state) noteTakenOut(node kmutex.Node, reason string) bool {
	i := slices.IndexFunc(s.Lost, func(l Lost) bool { return l.Node == node })
	if i < 0 || s.Lost[i].TakenOut() || !strings.HasPrefix(reason, ByOperator) {
		return false
	}
	s.Lost[i].Reason = reason
	return true
}

// expire ends what lost members owe because of their leases.
func (s *state) expire(index uint64, c Expire) bool {
	moved := make(pools)
	changed := false
	for _, node := range c.Nodes {
		if !s.has(node) && s.unlease(node, moved) {
			changed = true
		}
	}
	s.beginEpochs(index, moved)
	return changed
}

// giveBack ends what lost members owe a pool beyond their leases.
func (s *state) giveBack(index uint64, c Return) (bool, error) {
	at, err := s.pool(c.Pool)
	if err != nil {
		return false, err
	}
	changed := false
	for _, node := range c.Nodes {
		if !s.leased(node) && s.Pools[at].forgive(node) {
			changed = true
		}
	}
	if changed {
		s.beginEpochs(index, pools{at: true})
	}
	return changed, nil
}

func (s *state) lostAs(node kmutex.Node, name string) bool {
	return slices.ContainsFunc(s.Lost, func(l Lost) bool { return l.Node == node && l.Name == name })
}

func (s *state) leased(node kmutex.Node) bool {
	return slices.ContainsFunc(s.Lost, func(l Lost) bool { return l.Node == node && l.Leased })
}

// lose moves a member to the lost, for a reason. If its lease may still run, it owes every
// pool the tokens that it may have. It returns all pools: any of them may have
// lost tokens, the baton or a place in the tree. A witness has nothing of a pool.
func (s *state) lose(index uint64, node kmutex.Node, leased bool, reason string) pools {
	at := slices.IndexFunc(s.Members, func(m Member) bool { return m.Node == node })
	m := s.Members[at]
	leased = leased && !m.Witness
	s.Members = slices.Delete(s.Members, at, at+1)
	s.Lost = append(s.Lost, Lost{Node: node, At: index, Name: m.Name, Boot: m.Boot, Successor: node, Leased: leased, Witness: m.Witness, Reason: reason})
	if len(s.Lost) > maxLost {
		s.Lost = slices.Delete(s.Lost, 0, len(s.Lost)-maxLost)
	}
	return s.poolSet(func(p *Pool) bool {
		if leased {
			p.owe(node)
		}
		return !m.Witness
	})
}

// unlease notes that a lost member has nothing in flight any more, and adds
// the pools to moved that get tokens back by it. Pools that reclaim by the
// longest hold do not: the upstream may still be at work for a connection that
// has been closed. A member that has been forgotten may still be owed.
func (s *state) unlease(node kmutex.Node, moved pools) bool {
	changed := false
	for i := range s.Lost {
		if l := &s.Lost[i]; l.Node == node && l.Leased {
			l.Leased, changed = false, true
		}
	}
	for i := range s.Pools {
		if p := &s.Pools[i]; p.Reclaim == admission.ReclaimLease && p.forgive(node) {
			moved[i], changed = true, true
		}
	}
	return changed
}

// findSuccessors gives every lost member whose successor is no member a successor. A successor
// that is lost hands what it had to its own successor, which has the copies of it:
// so successors are followed from loss to loss, not chosen again. While nobody is
// there the last one stays noted.
func (s *state) findSuccessors() {
	ring := ringOf(s.Members)
	nodes := make(map[string]kmutex.Node, len(s.Members))
	members := make(map[kmutex.Node]bool, len(s.Members))
	for _, m := range s.Members {
		nodes[m.Name], members[m.Node] = m.Node, true
	}
	names := make(map[kmutex.Node]string, len(s.Lost))
	for _, l := range s.Lost {
		names[l.Node] = l.Name
	}
	for i := range s.Lost {
		l := &s.Lost[i]
		if members[l.Successor] {
			continue
		}
		last := l.Name
		if name, known := names[l.Successor]; known {
			last = name
		}
		if next := successor(ring, last); next != "" {
			l.Successor = nodes[next]
		}
	}
}

// successor returns the first ring successor of a name. A gateway that is alone
// inherits what it left itself.
func successor(ring *chordring.Ring, name string) string {
	if next := ring.Successors(name, 1); len(next) > 0 {
		return next[0]
	}
	return ring.Owner(name)
}
