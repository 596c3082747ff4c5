package kmutex_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kgate/kgate/kmutex"
)

// choices is where a schedule's decisions come from: a seeded source, or the
// bytes of a fuzzer.
type choices interface {
	// IntN returns a number in [0, n).
	IntN(n int) int
}

// schedule runs a world of any size along random choices, with epochs that
// begin at any moment. Reports and installs reach the nodes one by one.
type schedule struct {
	*world
	choices choices
	epoch   uint64
	// While an epoch is being formed: which nodes have reported, and the
	// installs that have not arrived.
	frozen   []bool
	reports  []kmutex.Report
	installs map[int]*kmutex.Install
	// ended are tickets whose release or cancel a frozen node has kept aside.
	ended map[end]bool
	log   []string
}

type end struct {
	node   int
	ticket kmutex.Ticket
}

func newSchedule(s scope, c choices) *schedule {
	return &schedule{world: newWorld(s), choices: c, epoch: 1, frozen: make([]bool, s.nodes), ended: make(map[end]bool)}
}

// freeze takes a node's report; the last one plans the epoch. Tickets stand in
// for times of arrival: any order is a possible one.
func (s *schedule) freeze(i int) error {
	m := s.machines[i].Clone()
	s.machines[i] = m
	fx, err := m.Step(kmutex.Event{Kind: kmutex.EventFreeze, Epoch: s.epoch, K: s.scope.k})
	if err != nil {
		return err
	}
	r := *fx.Report
	for j := range r.Waiting {
		r.Waiting[j].Stamp = int64(r.Waiting[j].Tickets[0])
	}
	state := m.State()
	s.frozen[i], s.states[i] = true, &state
	s.reports = append(s.reports, r)
	if slices.Contains(s.frozen, false) {
		return nil
	}
	home := kmutex.Node(1 + s.choices.IntN(s.scope.nodes))
	installs, err := kmutex.Reform(kmutex.Formation{Epoch: s.epoch, K: s.scope.k, Home: home}, s.reports)
	s.installs = make(map[int]*kmutex.Install)
	for j, in := range installs {
		s.installs[int(s.reports[j].Node)-1] = in
	}
	return err
}

// ways returns what can happen next.
func (s *schedule) ways(epochs bool) []step {
	ways := slices.DeleteFunc(s.steps(), func(w step) bool {
		over := w.event.Kind == kmutex.EventRelease || w.event.Kind == kmutex.EventCancel
		return over && s.ended[end{w.node, w.event.Ticket}]
	})
	switch forming := slices.Contains(s.frozen, true); {
	case s.installs != nil:
		for i := range s.machines {
			if in := s.installs[i]; in != nil {
				ways = append(ways, step{node: i, deliver: -1, event: kmutex.Event{Kind: kmutex.EventInstall, Install: in}})
			}
		}
	case forming || epochs:
		for i, frozen := range s.frozen {
			if !frozen {
				ways = append(ways, step{node: i, deliver: -1, event: kmutex.Event{Kind: kmutex.EventFreeze}})
			}
		}
	}
	return ways
}

func (s *schedule) go1(way step) error {
	s.log = append(s.log, way.String())
	switch way.event.Kind {
	case kmutex.EventFreeze:
		if !slices.Contains(s.frozen, true) {
			s.epoch++
			s.reports = nil
		}
		return s.freeze(way.node)
	case kmutex.EventInstall:
		delete(s.installs, way.node)
		s.frozen[way.node] = false
		if len(s.installs) == 0 {
			s.installs = nil
		}
	case kmutex.EventRelease, kmutex.EventCancel:
		s.ended[end{way.node, way.event.Ticket}] = true
	default:
	}
	return s.take(way)
}

// run goes on until nothing can happen, and checks every state on the way that
// is whole, that is, in one epoch.
func (s *schedule) run(epochs, most int) error {
	for range most {
		ways := s.ways(epochs > 0)
		running := 0
		for _, st := range s.states {
			running += len(st.Running)
		}
		if running > s.scope.k {
			return fmt.Errorf("%d in the critical section, k=%d", running, s.scope.k)
		}
		if !slices.Contains(s.frozen, true) {
			if err := s.checkWhole(ways); err != nil {
				return err
			}
		}
		if len(ways) == 0 {
			return nil
		}
		way := ways[s.choices.IntN(len(ways))]
		if way.event.Kind == kmutex.EventFreeze && !slices.Contains(s.frozen, true) {
			epochs--
		}
		if err := s.go1(way); err != nil {
			return err
		}
	}
	return fmt.Errorf("not at rest after %d steps", most)
}

func (s *schedule) checkWhole(ways []step) error {
	whole := *s.world
	whole.flight = slices.DeleteFunc(slices.Clone(s.flight), func(e kmutex.Envelope) bool { return e.Message.Epoch < s.epoch })
	return whole.check(ways)
}

// Every random schedule, with cancels and epochs that begin at any moment, keeps
// the invariants and ends with everybody served.
func TestRandomSchedules(t *testing.T) {
	runs := 4000
	if testing.Short() {
		runs = 400
	}
	entries := 0
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := newSchedule(scope{
			nodes: 1 + r.IntN(6), k: 1 + r.IntN(5), requests: 1 + r.IntN(8), cancels: r.IntN(10), early: r.IntN(2) == 0,
		}, r)
		if err := s.run(r.IntN(4), 1<<16); err != nil {
			for _, l := range s.log {
				t.Log(l)
			}
			t.Fatalf("seed %d, %v: %v", seed, s.scope, err)
		}
		entries += s.scope.nodes * s.scope.requests
	}
	t.Logf("%d schedules, %d tickets", runs, entries)
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
		s := newSchedule(scope{
			nodes: 1 + c.IntN(4), k: 1 + c.IntN(3), requests: 1 + c.IntN(4), cancels: c.IntN(4), early: c.IntN(2) == 0,
		}, c)
		if err := s.run(c.IntN(3), 1<<14); err != nil {
			t.Fatalf("%v: %v\n%q", s.scope, err, s.log)
		}
	})
}

// Whatever a peer sends is refused or harmless: Step returns an error and the
// machine is as before, or the message is one that could be.
func TestNonsenseFromPeers(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 4))
		s := newSchedule(scope{nodes: 3, k: 2, requests: 3, early: r.IntN(2) == 0}, r)
		for range 40 {
			ways := s.ways(false)
			if len(ways) == 0 {
				break
			}
			if err := s.go1(ways[r.IntN(len(ways))]); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			i := r.IntN(3)
			m := s.machines[i].Clone()
			before := fmt.Sprint(m.State())
			msg := nonsense(r)
			if _, err := m.Step(kmutex.Event{Kind: kmutex.EventReceive, From: kmutex.Node(r.IntN(5)), Message: msg}); err != nil {
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
		Kind: kmutex.Kind(r.IntN(8)), Epoch: 1, Origin: kmutex.Node(r.IntN(5)), Seat: seat(), Child: seat(),
		Token: kmutex.Token(r.IntN(6) - 2), Number: uint64(r.IntN(6)), Counter: uint32(r.IntN(4)), Holder: kmutex.Node(r.IntN(5)),
	}
	for range r.IntN(4) {
		m.Tails = append(m.Tails, seat())
	}
	for range r.IntN(4) {
		m.Free.Add(kmutex.Token(r.IntN(4)))
	}
	return m
}
