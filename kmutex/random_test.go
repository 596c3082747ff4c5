package kmutex_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kgate/kgate/kmutex"
)

// way is one thing that can happen next in a schedule.
type way struct {
	name label
	take func() error
	ends bool // it ends a critical section
}

// label names a way. It is formatted only if the schedule is shown.
type label struct {
	format string
	args   [2]any
}

func (l label) String() string {
	return fmt.Sprintf(l.format, l.args[:strings.Count(l.format, "%")]...)
}

// ways returns everything that can happen next without a command.
func (w *churn) ways() []way {
	var ways []way
	for i, p := range w.peers {
		n := kmutex.Node(i + 1)
		if p.standing != gone && !p.killed {
			ways = w.local(ways, n, p)
		}
		if p.standing == member && p.view < len(w.views)-1 {
			ways = append(ways, way{name: label{"node %d learns a view", [2]any{n}}, take: func() error {
				// Views can be skipped, but for one's own first.
				return w.learn(n, p.view+1+w.choices.IntN(len(w.views)-p.view-1))
			}})
		}
	}
	return w.mail(ways)
}

// some returns ways of one kind: commands are rarer than the rest, or they would
// all be over at once.
func (w *churn) some() []way {
	ways := w.ways()
	members := w.newest().members
	commands := w.commands(w.pick(members), 1+w.choices.IntN(6))
	if len(ways) == 0 || len(commands) > 0 && w.choices.IntN(16) == 0 {
		return commands
	}
	return ways
}

// local appends the events of a node's own clients and timer.
func (w *churn) local(ways []way, n kmutex.Node, p *peer) []way {
	event := func(kind kmutex.EventKind, t kmutex.Request) {
		e := kmutex.Event{Kind: kind, Request: t}
		ways = append(ways, way{name: label{"node %d: %v", [2]any{n, &e}}, take: func() error {
			switch kind {
			case kmutex.EventAcquire:
				p.acquired++
				w.clock++
				p.slots[t] = &slot{stamp: w.clock}
			case kmutex.EventCancel, kmutex.EventRelease:
				if kind == kmutex.EventCancel {
					w.cancels--
				}
				p.ended[t] = true
				p.slots[t].over = true
			case kmutex.EventRetryDue:
				if len(p.state.Offered) == 0 {
					w.probes--
				}
			default:
			}
			_, err := w.step(n, e)
			return err
		}, ends: kind == kmutex.EventRelease})
	}
	if p.acquired < w.requests && p.state.Epoch > 0 && p.standing == member {
		event(kmutex.EventAcquire, kmutex.Request(p.acquired+1))
	}
	if p.asking {
		event(kmutex.EventAskDue, 0)
	}
	for _, g := range p.state.Running {
		if !p.ended[g.Request] {
			event(kmutex.EventRelease, g.Request)
		}
	}
	if p.retrying && (w.probes > 0 || len(p.state.Offered) > 0) {
		event(kmutex.EventRetryDue, 0)
	}
	ways = w.health(ways, n, p)
	if w.cancels > 0 {
		for _, t := range waitingRequests(&p.state) {
			if !p.ended[t] {
				event(kmutex.EventCancel, t)
			}
		}
	}
	return ways
}

// health appends the changes in health that a node can see at the classes' upstreams.
func (w *churn) health(ways []way, n kmutex.Node, p *peer) []way {
	v := w.newest()
	for i, c := range v.classes {
		barred := p.state.Barred.Clone()
		switch both := c.Tokens.Clone(); {
		case len(both) == 0:
			continue
		case barred.Has(c.Tokens.Tokens()[0]):
			barred.RemoveAll(both)
			ways = append(ways, way{name: label{"node %d uses class %d again", [2]any{n, i}}, take: func() error {
				_, err := w.step(n, kmutex.Event{Kind: kmutex.EventBar, Barred: barred})
				return err
			}})
		case w.bars > 0:
			barred.AddAll(both)
			ways = append(ways, way{name: label{"node %d bars class %d", [2]any{n, i}}, take: func() error {
				w.bars--
				_, err := w.step(n, kmutex.Event{Kind: kmutex.EventBar, Barred: barred})
				return err
			}})
		}
	}
	for _, g := range p.state.Running {
		if p.state.Barred.Has(g.Token) && !p.ended[g.Request] && !p.state.Frozen {
			ways = append(ways, way{name: label{"node %d: %d could not use its token", [2]any{n, g.Request}}, take: func() error {
				_, err := w.step(n, kmutex.Event{Kind: kmutex.EventReturn, Request: g.Request})
				return err
			}})
		}
	}
	return ways
}

// mail appends the deliveries. Between members no message is lost; messages from and to a lost
// node may be.
func (w *churn) mail(ways []way) []way {
	cut := func(n kmutex.Node) bool { return w.peer(n).standing != member }
	dead := func(n kmutex.Node) bool { return w.peer(n).standing == gone || w.peer(n).killed }
	for j, e := range w.flight {
		drop := func() { w.flight = slices.Delete(w.flight, j, j+1) }
		if cut(e.From) || cut(e.To) {
			ways = append(ways, way{name: label{"lost: %v", [2]any{&e}}, take: func() error { drop(); return nil }})
		}
		if !dead(e.To) {
			ways = append(ways, way{name: label{"%v", [2]any{&e}}, take: func() error {
				drop()
				_, err := w.step(e.To, kmutex.Event{Kind: kmutex.EventReceive, From: e.From, Message: &e.Message})
				return err
			}})
		}
	}
	for j, l := range w.letters {
		p := w.peer(l.to)
		if l.report != nil && p.state.Epoch < l.epoch && !cut(l.to) {
			continue // home has not come to that view yet: asked again
		}
		ways = append(ways, way{name: label{"letter of epoch %d to %d", [2]any{l.epoch, l.to}}, take: func() error {
			w.letters = slices.Delete(w.letters, j, j+1)
			switch {
			case dead(l.to), cut(l.to) && w.choices.IntN(2) == 0:
				return nil
			case l.report != nil:
				return w.collect(p, l)
			default:
				return w.begin(l.to, l)
			}
		}})
	}
	return ways
}

// commands returns the changes that operators and failures can make to the view: to member n, to
// k, and to leases.
func (w *churn) commands(n kmutex.Node, k int) []way {
	ways := w.loss(nil, n)
	command := func(budget *int, name label, do func()) {
		if *budget > 0 {
			ways = append(ways, way{name: name, take: func() error { *budget--; do(); return nil }})
		}
	}
	if p := w.peer(n); len(w.newest().members) > 1 && len(p.state.Running) == 0 {
		command(&w.leaves, label{"node %d leaves", [2]any{n}}, func() { p.standing = gone; w.depart(n) })
	}
	command(&w.joins, label{format: "a node joins"}, func() {
		w.add()
		n := kmutex.Node(len(w.peers))
		w.agree(false, func(v *view) { v.members = append(v.members, n) })
		// A node sees no view before the first that lists it.
		w.peer(n).view = len(w.views) - 2
	})
	command(&w.moves, label{format: "an epoch begins"}, func() { w.agree(true, func(*view) {}) })
	command(&w.ks, label{"k is %d", [2]any{k}}, func() { w.agree(true, func(v *view) { v.setK(k, w.classes, w.choices) }) })
	return w.expiries(ways)
}

// loss appends the loss of member n.
func (w *churn) loss(ways []way, n kmutex.Node) []way {
	if w.losses == 0 || len(w.newest().members) == 1 {
		return ways
	}
	return append(ways, way{name: label{"node %d is lost", [2]any{n}}, take: func() error { w.losses--; w.lose(n); return nil }})
}

// expiries appends the ends of lost nodes' leases.
func (w *churn) expiries(ways []way) []way {
	for i, p := range w.peers {
		if p.standing == lost {
			n := kmutex.Node(i + 1)
			ways = append(ways, way{name: label{"the lease of node %d has run out", [2]any{n}}, take: func() error { w.expire(n); return nil }})
		}
	}
	return ways
}

// run goes on until nothing can happen, and checks every state on the way.
func (w *churn) run(most int) error {
	for range most {
		ways := w.some()
		if len(ways) == 0 {
			return w.atRest()
		}
		next := ways[w.choices.IntN(len(ways))]
		for i := 0; i < w.holds && next.ends; i++ {
			next = ways[w.choices.IntN(len(ways))]
		}
		w.log = append(w.log, next.name)
		if err := next.take(); err != nil {
			return err
		}
		if err := w.check(); err != nil {
			return err
		}
	}
	return fmt.Errorf("not at rest after %d steps", most)
}

var firstSchedule = flag.Uint64("schedules.first", 0, "seed of the first schedule of TestRandomSchedules")

// Every random schedule, with nodes that are lost, leave and join, k changed, and
// epochs that overtake each other, keeps the promise and the invariants in every
// state and ends with everybody served and all tokens back. KMUTEX_SCHEDULES sets
// how many there are; KGATE_SOAK asks for 10,000.
func TestRandomSchedules(t *testing.T) {
	runs := 4000
	if soak {
		runs = 10_000
	}
	if n, err := strconv.Atoi(os.Getenv("KMUTEX_SCHEDULES")); err == nil {
		runs = n
	}
	if testing.Short() {
		runs = 1250
	}
	grants := 0
	for seed := *firstSchedule; seed < *firstSchedule+uint64(runs); seed++ {
		r := rand.New(rand.NewPCG(seed, 2))
		s := churnScope{
			early: r.IntN(2) == 0, nodes: 1 + r.IntN(6), k: 1 + r.IntN(5), requests: 1 + r.IntN(8), cancels: r.IntN(10),
		}
		switch kind := r.IntN(4); {
		case seed%5 == 4: // long critical sections, while k goes up and down
			s.k, s.requests, s.ks, s.holds = 1+r.IntN(8), 3+r.IntN(10), 1+r.IntN(6), r.IntN(8)
			s.losses, s.joins, s.moves = r.IntN(3), r.IntN(2), r.IntN(2)
		case kind == 0: // one epoch
		case kind == 1:
			s.losses, s.leaves, s.joins, s.ks, s.moves = r.IntN(5), r.IntN(2), r.IntN(5), r.IntN(4), r.IntN(3)
		default: // few nodes that all wait for few tokens: what goes wrong shows
			s.nodes, s.k, s.requests = 2+r.IntN(3), 1+r.IntN(2), 3+r.IntN(10)
			s.losses, s.joins, s.ks, s.moves = 1+r.IntN(4), 1+r.IntN(3), r.IntN(4), r.IntN(3)
		}
		if seed%3 == 2 {
			s.early, s.classes, s.bars = false, 1+r.IntN(3), r.IntN(6)
		}
		s.probes = 3 * int(seed%5)
		w := newChurn(s, r)
		if err := w.run(1 << 16); err != nil {
			for _, l := range w.log {
				t.Log(l)
			}
			t.Fatalf("seed %d, %+v: %v", seed, s, err)
		}
		grants += w.grants
	}
	t.Logf("%d schedules, %d grants", runs, grants)
}

// tape lets a fuzzer decide.
type tape struct{ data []byte }

// IntN implements choices. At the end of the tape the first way is taken.
func (f *tape) IntN(n int) int {
	if len(f.data) == 0 {
		return 0
	}
	b := f.data[0]
	f.data = f.data[1:]
	return int(b) % n
}

func FuzzSchedule(f *testing.F) {
	f.Add([]byte{3, 2, 3, 1, 0, 1})
	f.Add([]byte("\x02\x01\x04\x02\x01\x01 any bytes are a schedule, in a sense"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &tape{data}
		s := churnScope{
			nodes: 1 + c.IntN(4), k: 1 + c.IntN(3), requests: 1 + c.IntN(4), cancels: c.IntN(4), early: c.IntN(2) == 0,
			losses: c.IntN(3), leaves: c.IntN(2), joins: c.IntN(3), ks: c.IntN(3), moves: c.IntN(3), probes: 2,
		}
		w := newChurn(s, c)
		if err := w.run(1 << 14); err != nil {
			t.Fatalf("%+v: %v\n%q", s, err, w.log)
		}
	})
}

// Any message of a peer is refused or harmless: Step returns an error and the machine is as
// before, or a correct peer could have sent the message.
func TestNonsenseFromPeers(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 4))
		w := newChurn(churnScope{nodes: 3, k: 2, requests: 3, early: r.IntN(2) == 0, probes: 3}, r)
		for range 40 {
			ways := w.ways()
			if len(ways) == 0 {
				break
			}
			if err := ways[r.IntN(len(ways))].take(); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			m := w.peers[r.IntN(3)].machine.Clone()
			before := fmt.Sprint(m.State())
			msg := nonsense(r)
			if _, err := m.Step(&kmutex.Event{Kind: kmutex.EventReceive, From: kmutex.Node(r.IntN(5)), Message: &msg}); err != nil {
				if after := fmt.Sprint(m.State()); after != before {
					t.Fatalf("seed %d: %v was refused (%v) and changed the state\n%s\n%s", seed, msg, err, before, after)
				}
			}
		}
	}
}

func nonsense(r *rand.Rand) kmutex.Message {
	seat := func() kmutex.Seat { return kmutex.Seat{Node: kmutex.Node(r.IntN(5)), Serial: uint64(r.IntN(8))} }
	m := kmutex.Message{
		Kind: kmutex.Kind(r.IntN(11)), Epoch: 1, Origin: kmutex.Node(r.IntN(5)), Batch: uint64(r.IntN(4)), Other: uint64(r.IntN(4)), Changes: uint64(r.IntN(3)), Seat: seat(), Child: seat(),
		Token: kmutex.Token(r.IntN(6) - 2), Number: uint64(r.IntN(6)), Counter: uint32(r.IntN(4)), Serial: uint64(r.IntN(6)),
		Holder: kmutex.Node(r.IntN(5)), Want: uint32(r.IntN(4)), Hops: uint32(r.IntN(4)),
	}
	for range r.IntN(4) {
		m.Tails = append(m.Tails, seat())
	}
	for range r.IntN(3) {
		m.Resting = append(m.Resting, kmutex.Node(r.IntN(5)))
	}
	for range r.IntN(4) {
		m.Free.Add(kmutex.Token(r.IntN(4)))
	}
	return m
}
