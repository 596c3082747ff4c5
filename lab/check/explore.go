package check

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Errors of [Explore] and [Fuzz].
var (
	// ErrUnsafe means that more than k were in the critical section.
	ErrUnsafe = errors.New("check: more than k in the critical section")
	// ErrStarved means that somebody waits and can never be served.
	ErrStarved = errors.New("check: somebody is never served")
	// ErrPanic means that the protocol refused what happened.
	ErrPanic = errors.New("check: panic")
	// ErrTooLarge means that there are more states than the scope allows.
	ErrTooLarge = errors.New("check: too many states")
)

// Scope is a small system.
type Scope struct {
	Protocol protocol.Spec
	Nodes, K int
	// Members begin in the system; 0: all.
	Members int
	// Requests that each node makes, one after the other.
	Requests int
	// Crashes, Leaves and Joins is how many there are at most, of any node and at
	// any moment.
	Crashes, Leaves, Joins int
	// AnyOrder lets a message overtake another one on the same link.
	AnyOrder bool
	// Bounded lets timers run out only while no message is on its way: timers
	// are longer than the longest delay.
	Bounded bool
	// States at most; 0: 2,000,000.
	States int
}

// Explore visits all states and returns their number. The error tells the schedule that leads to the
// fault.
func Explore(s Scope) (states int, err error) {
	if s.Members == 0 {
		s.Members = s.Nodes
	}
	if s.States == 0 {
		s.States = 2_000_000
	}
	x := &search{scope: s, seen: make(map[[2]uint64]int32), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	w, err := x.replay(nil)
	if err != nil {
		return 0, err
	}
	if _, err = x.visit(w); err != nil {
		return len(x.nodes), err
	}
	return len(x.nodes), x.everybodyServed()
}

// search is the graph of states found so far.
type search struct {
	scope Scope
	seen  map[[2]uint64]int32
	seeds [2]maphash.Seed
	nodes []state
}

// state is a vertex: the states that it was reached from, and how.
type state struct {
	from []int32
	done bool // nobody waits, and nobody is in the critical section
	via  action
}

// visit explores w and all states behind it, depth first. It uses w up.
func (x *search) visit(w *world) (id int32, err error) {
	stack := []frame{}
	push := func(w *world, from int32) error {
		key := x.key(w)
		id, old := x.seen[key]
		if !old {
			if len(x.nodes) >= x.scope.States {
				return fmt.Errorf("%w: more than %d", ErrTooLarge, x.scope.States)
			}
			id = int32(len(x.nodes))
			x.seen[key] = id
			x.nodes = append(x.nodes, state{done: w.done()})
			if n := len(w.path); n > 0 {
				x.nodes[id].via = w.path[n-1]
			}
			stack = append(stack, frame{id: id, world: w, path: w.path, actions: w.actions()})
		}
		if from >= 0 {
			x.nodes[id].from = append(x.nodes[id].from, from)
		}
		return nil
	}
	if err := push(w, -1); err != nil {
		return 0, err
	}
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		if len(f.actions) == 0 {
			stack = stack[:len(stack)-1]
			continue
		}
		a := f.actions[0]
		f.actions = f.actions[1:]
		next := f.world
		f.world = nil // the first action takes it along, the others replay
		if next == nil {
			if next, err = x.replay(f.path); err != nil {
				return 0, err
			}
		}
		if err := next.do(a); err != nil {
			return 0, err
		}
		if err := push(next, f.id); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

type frame struct {
	id      int32
	world   *world // nil: used up
	path    []action
	actions []action
}

// everybodyServed walks back from the states in which nobody waits.
func (x *search) everybodyServed() error {
	reached := make([]bool, len(x.nodes))
	var queue []int32
	for i := range x.nodes {
		if x.nodes[i].done {
			reached[i] = true
			queue = append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		i := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, from := range x.nodes[i].from {
			if !reached[from] {
				reached[from] = true
				queue = append(queue, from)
			}
		}
	}
	if i := slices.Index(reached, false); i >= 0 {
		return fmt.Errorf("%w after%s", ErrStarved, describe(x.pathTo(int32(i))))
	}
	return nil
}

// pathTo returns the actions by which a state was found.
func (x *search) pathTo(i int32) (path []action) {
	for i != 0 {
		path = append(path, x.nodes[i].via)
		i = x.nodes[i].from[0]
	}
	slices.Reverse(path)
	return path
}

func (x *search) replay(path []action) (*world, error) {
	w := &world{
		scope: x.scope, clients: make([]client, x.scope.Nodes), flight: make(map[[2]int][]any),
		crashes: x.scope.Crashes, leaves: x.scope.Leaves, joins: x.scope.Joins,
	}
	for i := x.scope.Members; i < x.scope.Nodes; i++ {
		w.clients[i].life = outside
	}
	p, err := x.scope.Protocol.New(w, protocol.Setup{Nodes: x.scope.Nodes, Members: x.scope.Members, K: x.scope.K, Delay: time.Second})
	if err != nil {
		return nil, err
	}
	w.protocol = p
	for _, a := range path {
		if err := w.do(a); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (x *search) key(w *world) [2]uint64 {
	text := w.encode()
	return [2]uint64{maphash.Bytes(x.seeds[0], text), maphash.Bytes(x.seeds[1], text)}
}

func describe(path []action) string {
	var b strings.Builder
	for _, a := range path {
		fmt.Fprintf(&b, "\n\t%v", a)
	}
	return b.String()
}

// Host of the explored protocol.

func (*world) Now() time.Duration { return 0 }

// Rand gives the same numbers in every state: a protocol draws delays only, and
// timers run out in any order.
func (*world) Rand() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }

func (*world) Found(int) {}

func (w *world) Send(from, to int, kind string, m any) {
	if from == to {
		panic(fmt.Sprintf("node %d sends %q to itself", from, kind))
	}
	if w.clients[to].running() {
		link := [2]int{from, to}
		w.flight[link] = append(w.flight[link], m)
	}
}

func (w *world) After(node int, _ time.Duration, t sim.Timer) {
	w.timers = append(w.timers, timer{node, t})
}

func (w *world) Grant(node int, t protocol.Request) {
	c := &w.clients[node]
	if c.request != t || c.granted {
		panic(fmt.Sprintf("request %d is granted at node %d, which waits for %d", t, node, c.request))
	}
	c.granted = true
}
