package kmutex_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"testing"

	"github.com/kgate/kgate/kmutex"
)

// everything returns every way on: one member can be lost at any moment.
func (w *churn) everything() []way {
	ways := w.expiries(w.ways())
	for _, n := range w.newest().members {
		ways = w.loss(ways, n)
	}
	return ways
}

// tidy takes at once the steps that only could be postponed, and drops messages and installs of
// past epochs, which have no effect. A waiting report is the same as a node that has not frozen yet.
// (The random schedules keep all of these.)
func (w *churn) tidy() error {
	w.flight = slices.DeleteFunc(w.flight, func(e kmutex.Envelope) bool {
		p := w.peer(e.To)
		return p.standing == gone || e.Message.Epoch < p.state.Epoch
	})
	for i := 0; i < len(w.letters); {
		l := w.letters[i]
		p := w.peer(l.to)
		waits := l.report != nil && p.state.Epoch < l.epoch || l.install != nil && p.state.Frozen && p.state.Epoch == l.epoch
		if waits && p.standing == member {
			i++
			continue
		}
		w.letters = slices.Delete(w.letters, i, i+1)
		if l.report != nil {
			if err := w.collect(p, l); err != nil {
				return err
			}
			i = 0
		}
	}
	for i, p := range w.peers {
		if p.asking && w.requests == 1 { // nobody has anything more to ask for
			if _, err := w.step(kmutex.Node(i+1), kmutex.Event{Kind: kmutex.EventAskDue}); err != nil {
				return err
			}
		}
	}
	return nil
}

// exploreLoss visits every world of s in which one node is lost, and returns how
// many there are.
func exploreLoss(s churnScope) (int, error) {
	seeds := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	seen := make(map[[2]uint64]struct{})
	var key []byte
	fresh := func(w *churn) bool {
		key = w.appendKey(key[:0])
		h := [2]uint64{maphash.Bytes(seeds[0], key), maphash.Bytes(seeds[1], key)}
		_, old := seen[h]
		seen[h] = struct{}{}
		return !old
	}
	first := newChurn(s, &tape{}) // of several choices always the first
	for i := range first.peers {
		if err := first.learn(kmutex.Node(i+1), 0); err != nil {
			return 0, err
		}
	}
	fresh(first)
	type frame struct {
		w    *churn
		left int
		via  label
	}
	path := []frame{{w: first, left: len(first.everything())}}
	fail := func(last label, err error) (int, error) {
		trace := ""
		for _, f := range path {
			trace += f.via.String() + "\n"
		}
		return len(seen), fmt.Errorf("%+v: %w\nafter:%s%v", s, err, trace, last)
	}
	for len(path) > 0 {
		top := &path[len(path)-1]
		if top.left == 0 {
			path = path[:len(path)-1]
			continue
		}
		top.left--
		w := top.w.clone()
		next := w.everything()[top.left]
		if err := cmp.Or(next.take(), w.tidy()); err != nil {
			return fail(next.name, err)
		}
		if !fresh(w) {
			continue
		}
		if err := w.check(); err != nil {
			return fail(next.name, err)
		}
		ways := len(w.everything())
		if ways == 0 {
			if err := w.atRest(); err != nil {
				return fail(next.name, err)
			}
		}
		path = append(path, frame{w, ways, next.name})
	}
	return len(seen), nil
}

// Every world of few nodes, one request each, in which one node is lost at any
// moment, goes on for a while without knowing it, and has its lease run out.
func TestExploreLoss(t *testing.T) {
	scopes := []churnScope{
		{nodes: 2, k: 1, requests: 1, losses: 1},
		{nodes: 2, k: 2, requests: 1, losses: 1},
		{nodes: 2, k: 1, requests: 2, losses: 1},
		{nodes: 3, k: 1, requests: 1, losses: 1},
	}
	if soak {
		scopes = append(scopes, churnScope{nodes: 3, k: 2, requests: 1, losses: 1})
	}
	for _, early := range []bool{false, true} {
		for _, s := range scopes {
			s.early = early
			t.Run(fmt.Sprintf("early=%v,n=%d,k=%d,requests=%d", early, s.nodes, s.k, s.requests), func(t *testing.T) {
				if testing.Short() && (s.nodes == 3 || s.requests == 2) {
					t.Skip("tens of thousands of states and more")
				}
				t.Parallel()
				n, err := exploreLoss(s)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d states", n)
			})
		}
	}
}

// clone returns a copy that shares nothing that changes.
func (w *churn) clone() *churn {
	c := *w
	slots := make(map[*slot]*slot)
	same := func(s *slot) *slot {
		if slots[s] == nil {
			n := *s
			slots[s] = &n
		}
		return slots[s]
	}
	heirlooms := func(hs []heirloom) []heirloom {
		hs = slices.Clone(hs)
		for i := range hs {
			hs[i].slot = same(hs[i].slot)
		}
		return hs
	}
	bySlot := func(m map[kmutex.Request]*slot) map[kmutex.Request]*slot {
		n := make(map[kmutex.Request]*slot, len(m))
		for t, s := range m {
			n[t] = same(s)
		}
		return n
	}
	c.peers = nil
	for _, p := range w.peers {
		n := *p
		p.shared, n.shared = true, true
		n.slots, n.ended, n.unplanned = bySlot(p.slots), maps.Clone(p.ended), slices.Clone(p.unplanned)
		n.heirlooms = heirlooms(p.heirlooms)
		if p.planning != nil {
			f := *p.planning
			f.awaited, f.reports, f.adopted = maps.Clone(f.awaited), slices.Clone(f.reports), maps.Clone(f.adopted)
			for node, m := range f.adopted {
				f.adopted[node] = bySlot(m)
			}
			n.planning = &f
		}
		c.peers = append(c.peers, &n)
	}
	c.views, c.flight, c.letters = slices.Clone(w.views), slices.Clone(w.flight), slices.Clone(w.letters)
	for i := range c.letters {
		l := &c.letters[i]
		l.heirlooms, l.adopted = heirlooms(l.heirlooms), bySlot(l.adopted)
		if l.report != nil {
			r := *l.report
			l.report = &r
		}
	}
	c.planned, c.serials, c.last = maps.Clone(w.planned), maps.Clone(w.serials), maps.Clone(w.last)
	for epoch := range c.serials {
		c.serials[epoch], c.last[epoch] = maps.Clone(c.serials[epoch]), maps.Clone(c.last[epoch])
	}
	c.log = nil
	return &c
}

// appendKey appends what decides the future of a pool.
func (w *churn) appendKey(b []byte) []byte {
	for _, p := range w.peers {
		if p.key == "" {
			p.key = stateKey(p.state)
		}
		b = append(b, p.key...)
		b = append(b, byte(p.standing), byte(p.view), byte(p.acquired), byte(len(p.heirlooms)), byte(len(p.unplanned)))
		b = appendBool(appendBool(appendBool(b, p.killed), p.asking), p.planning != nil)
		for _, epoch := range p.unplanned {
			b = append(b, byte(epoch))
		}
		if p.planning != nil {
			b = append(b, byte(p.planning.epoch))
			for i := range w.peers {
				b = appendBool(b, p.planning.awaited[kmutex.Node(i+1)])
			}
		}
		for _, t := range slices.Sorted(maps.Keys(p.slots)) {
			b = binary.AppendUvarint(b, uint64(t))
			b = appendBool(appendBool(b, p.slots[t].over), p.ended[t])
		}
	}
	mail := make([]string, 0, 16)
	for _, e := range w.flight {
		e.Message.Serial = 0
		mail = append(mail, e.String())
	}
	for _, l := range w.letters {
		from := kmutex.Node(0)
		if l.report != nil {
			from = l.report.Node
		}
		mail = append(mail, string([]byte{byte(l.to), byte(l.epoch), byte(from)}))
	}
	slices.Sort(mail)
	for _, m := range mail {
		b = append(append(b, byte(len(m))), m...)
	}
	for epoch := range uint64(len(w.views)) {
		b = fmt.Append(b, w.planned[epoch+1])
	}
	return append(b, byte(len(w.views)), byte(w.losses))
}

// stateKey names a state but for its serials, which only grow.
func stateKey(s kmutex.State) string {
	s.Serial, s.Seats, s.Running = 0, slices.Clone(s.Seats), slices.Clone(s.Running)
	for i := range s.Seats {
		s.Seats[i].Last = 0
	}
	for i := range s.Running {
		s.Running[i].Serial = 0
	}
	return fmt.Sprint(s)
}
