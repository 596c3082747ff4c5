package kmutex_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/kmutex"
)

// seedNode is the paper's node (section 3.2) with its misprints corrected as
// DIVERGENCE.md lists them, written down without a look at the machine:
// the reference that early binding is compared with. Nodes are 0..n-1 here and
// nobody is -1, as in the paper.
type seedNode struct {
	id                      int
	requesting, inCS, token bool
	parent, next, child     int
	isCoordinator           bool
	tokenLocations          []int
	counter                 int
	send                    func(seedMessage)
	enter                   func(node int)
}

type seedMessage struct {
	kind     string // request, token, child, token_locations
	from, to int
	r        int
	a        []int
	b        int
}

func (m seedMessage) String() string {
	return fmt.Sprintf("%s %d->%d r=%d a=%v b=%d", m.kind, m.from, m.to, m.r, m.a, m.b)
}

const nobody = -1

func newSeedNode(id, k int) *seedNode {
	n := &seedNode{id: id, token: id < k, parent: 0, next: nobody, child: nobody}
	if id == 0 {
		n.parent = nobody
		n.isCoordinator = true
		for q := range k {
			n.tokenLocations = append(n.tokenLocations, q)
		}
	}
	return n
}

func (n *seedNode) requestCS() {
	n.requesting = true
	if n.token {
		n.inCS = true
		n.enter(n.id)
		return
	}
	p := n.parent
	n.parent = nobody
	n.send(seedMessage{kind: "request", from: n.id, to: p, r: n.id})
}

func (n *seedNode) releaseCS() {
	n.inCS, n.requesting = false, false
	if n.child != nobody {
		c := n.child
		n.child, n.token = nobody, false
		n.send(seedMessage{kind: "token", from: n.id, to: c})
	}
}

func (n *seedNode) receive(m seedMessage) {
	switch m.kind {
	case "request":
		switch {
		case n.parent != nobody:
			n.send(seedMessage{kind: "request", from: n.id, to: n.parent, r: m.r})
		case n.isCoordinator:
			n.assign(m.r)
		default:
			n.next = m.r
		}
		n.parent = m.r
	case "token_locations":
		n.isCoordinator, n.tokenLocations, n.counter = true, slices.Clone(m.a), m.b
		if n.next != nobody {
			r := n.next
			n.next = nobody
			n.assign(r)
		}
	case "child":
		n.processChild(m.r)
	case "token":
		n.token, n.inCS = true, true
		n.enter(n.id)
	}
}

func (n *seedNode) assign(r int) {
	t := n.tokenLocations[n.counter]
	n.tokenLocations[n.counter] = r
	c := (n.counter + 1) % len(n.tokenLocations)
	l := n.tokenLocations
	n.isCoordinator, n.tokenLocations, n.counter = false, nil, 0
	if t == n.id {
		n.processChild(r)
	} else {
		n.send(seedMessage{kind: "child", from: n.id, to: t, r: r})
	}
	n.send(seedMessage{kind: "token_locations", from: n.id, to: r, a: l, b: c})
}

func (n *seedNode) processChild(r int) {
	if n.requesting {
		n.child = r
		return
	}
	n.token = false
	n.send(seedMessage{kind: "token", from: n.id, to: r})
}

// asSeed translates a message of the machine into the paper's.
func asSeed(e kmutex.Envelope) seedMessage {
	m := seedMessage{from: int(e.From) - 1, to: int(e.To) - 1}
	switch e.Message.Kind {
	case kmutex.KindRequest:
		m.kind, m.r = "request", int(e.Message.Origin)-1
	case kmutex.KindBaton:
		m.kind, m.b = "token_locations", int(e.Message.Counter)
		for _, s := range e.Message.Tails {
			m.a = append(m.a, int(s.Node)-1)
		}
	case kmutex.KindChild:
		m.kind, m.r = "child", int(e.Message.Child.Node)-1
	case kmutex.KindToken:
		m.kind = "token"
	default:
		m.kind = "unknown to the paper: " + e.Message.String()
	}
	return m
}

// sideBySide runs the paper's nodes and the machines under one schedule.
type sideBySide struct {
	nodes    []*seedNode
	machines []*kmutex.Machine
	sent     []seedMessage // by the paper, this step
	entered  []int
	flight   []kmutex.Envelope
	requests []kmutex.Request // of each machine
	inCS     []bool
	waiting  []bool
}

func newSideBySide(t *testing.T, n, k int) *sideBySide {
	s := &sideBySide{requests: make([]kmutex.Request, n), inCS: make([]bool, n), waiting: make([]bool, n)}
	for i := range n {
		node := newSeedNode(i, k)
		node.send = func(m seedMessage) { s.sent = append(s.sent, m) }
		node.enter = func(id int) { s.entered = append(s.entered, id) }
		s.nodes = append(s.nodes, node)
		m := kmutex.New(kmutex.Node(i+1), new(coordinator.Early))
		if _, err := m.Step(&kmutex.Event{Kind: kmutex.EventInstall, Install: seedInstall(i, k)}); err != nil {
			t.Fatal(err)
		}
		s.machines = append(s.machines, m)
	}
	return s
}

// seedInstall is the paper's initial state: the first k nodes have a token
// each, the first one is root and coordinator.
func seedInstall(i, k int) *kmutex.Install {
	in := &kmutex.Install{Epoch: 1, K: k, Home: 1, Holder: 1, Parent: 1}
	if i < k {
		in.Free.Add(kmutex.Token(i))
	}
	if i == 0 {
		in.Parent = 0
		for q := range k {
			in.Tails = append(in.Tails, kmutex.SeatOf(kmutex.Node(q+1), kmutex.Token(q)))
		}
	}
	return in
}

// step lets both take the same event, and compares the messages that they sent and the requests
// that entered.
func (s *sideBySide) step(i int, paper func(*seedNode), e kmutex.Event) error {
	s.sent, s.entered = nil, nil
	paper(s.nodes[i])
	var sent []seedMessage
	var entered []int
	for {
		fx, err := s.machines[i].Step(&e)
		if err != nil {
			return err
		}
		for _, env := range fx.Messages {
			s.flight = append(s.flight, env)
			sent = append(sent, asSeed(env))
		}
		for range fx.Grants {
			entered = append(entered, i)
			s.inCS[i], s.waiting[i] = true, false
		}
		if !fx.AskTimer {
			break
		}
		e = kmutex.Event{Kind: kmutex.EventAskDue} // no spacing of requests in the paper
	}
	if got, want := fmt.Sprint(sent), fmt.Sprint(s.sent); got != want {
		return fmt.Errorf("machine sent %s\nthe paper's node %s", got, want)
	}
	if !slices.Equal(entered, s.entered) {
		return fmt.Errorf("machine lets in %v, the paper %v", entered, s.entered)
	}
	return nil
}

// random takes one random step and reports whether one was possible.
func (s *sideBySide) random(r *rand.Rand, requests *int) (bool, error) {
	for range 100 {
		i := r.IntN(len(s.nodes))
		switch choice := r.IntN(4); {
		case choice == 0 && *requests > 0 && !s.waiting[i] && !s.inCS[i]:
			*requests--
			s.waiting[i] = true
			s.requests[i]++
			return true, s.step(i, (*seedNode).requestCS, kmutex.Event{Kind: kmutex.EventAcquire, Request: s.requests[i]})
		case choice == 1 && s.inCS[i]:
			s.inCS[i] = false
			return true, s.step(i, (*seedNode).releaseCS, kmutex.Event{Kind: kmutex.EventRelease, Request: s.requests[i]})
		case choice >= 2 && len(s.flight) > 0:
			j := r.IntN(len(s.flight))
			env := s.flight[j]
			s.flight = slices.Delete(s.flight, j, j+1)
			return true, s.step(int(env.To)-1, func(n *seedNode) { n.receive(asSeed(env)) },
				kmutex.Event{Kind: kmutex.EventReceive, From: env.From, Message: &env.Message})
		}
	}
	return *requests > 0 || len(s.flight) > 0 || slices.Contains(s.inCS, true), nil
}

// With one request per batch, early binding is the paper's algorithm: the same
// messages between the same nodes and the same entries, step for step, on random
// schedules with deliveries in any order.
func TestEarlyBindingIsThePapersAlgorithm(t *testing.T) {
	entries, messages := 0, 0
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := 2 + r.IntN(8)
		k := 1 + r.IntN(n)
		s := newSideBySide(t, n, k)
		requests := 5 * n
		for more := true; more; {
			var err error
			if more, err = s.random(r, &requests); err != nil {
				t.Fatalf("seed %d, n=%d, k=%d: %v", seed, n, k, err)
			}
			entries += len(s.entered)
			messages += len(s.sent)
			s.sent, s.entered = nil, nil
		}
		if i := slices.Index(s.waiting, true); i >= 0 {
			t.Fatalf("seed %d, n=%d, k=%d: node %d waits for ever", seed, n, k, i)
		}
	}
	t.Logf("%d entries, %d messages", entries, messages)
}
