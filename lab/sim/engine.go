package sim

import (
	"math/rand/v2"
	"time"
)

// World is the node of timers that belong to no node.
const World = -1

// Timer tells its owner which timer it is.
type Timer struct {
	Kind uint8
	Arg  uint64
}

// Handler is what runs on the engine.
type Handler interface {
	// Deliver lets node to take in a message of node from.
	Deliver(to, from int, message any)
	// Due tells node that a timer of it has run out.
	Due(node int, t Timer)
}

// Network says how long a message is on its way.
type Network interface {
	Delay(from, to int, r *rand.Rand) time.Duration
	// Steady reports that the delay between two nodes never varies, so that
	// messages keep their order by themselves.
	Steady() bool
}

// Engine runs events in order of time. Make it with [New]; it is not safe for
// concurrent use.
type Engine struct {
	now     time.Duration
	queue   queue
	rand    *rand.Rand
	network Network
	handler Handler
	nodes   []node
	// ordered: delays vary, so links have to keep messages in order.
	ordered bool
	links   map[linkID]*link
	events  uint64
}

type node struct {
	life   uint32
	dead   bool
	paused bool
	asleep []event // what waits for a paused node
	clock  clock
}

// New returns an engine with so many living nodes. The handler may be nil until
// the first event.
func New(seed uint64, nodes int, network Network, h Handler) *Engine {
	e := &Engine{
		rand:    rand.New(rand.NewPCG(seed, 0x6b67617465)),
		network: network, handler: h, ordered: !network.Steady(),
		nodes: make([]node, nodes), links: make(map[linkID]*link),
	}
	for i := range e.nodes {
		e.nodes[i].clock = clock{rate: 1}
	}
	return e
}

// Now returns the true time.
func (e *Engine) Now() time.Duration { return e.now }

// Rand returns the run's only random source.
func (e *Engine) Rand() *rand.Rand { return e.rand }

// Events returns how many events have happened.
func (e *Engine) Events() uint64 { return e.events }

// Nodes returns the number of nodes, dead or alive.
func (e *Engine) Nodes() int { return len(e.nodes) }

// Send puts a message on its way. The message belongs to the receiver from now
// on.
func (e *Engine) Send(from, to int, message any) {
	ev := event{
		message: message, to: int32(to), from: int32(from),
		life: e.nodes[to].life, sent: e.nodes[from].life,
	}
	at := e.now + e.network.Delay(from, to, e.rand)
	if e.ordered {
		at = e.inOrder(from, to, at)
	}
	e.queue.push(at, ev)
}

// After sets a timer of a node, or of the World, that runs out in d, by the
// node's own clock.
func (e *Engine) After(n int, d time.Duration, t Timer) {
	ev := event{timer: t, to: int32(n)}
	if n != World {
		ev.life = e.nodes[n].life
		d = e.nodes[n].clock.real(d)
	}
	e.queue.push(e.now+max(d, 0), ev)
}

// Step lets the next event happen, unless it is later than until; then the time
// is until. It reports whether there was one.
func (e *Engine) Step(until time.Duration) bool {
	for len(e.queue.keys) > 0 && e.queue.keys[0].at <= until {
		var ev event
		e.now, ev = e.queue.pop()
		if e.take(ev) {
			return true
		}
	}
	e.now = max(e.now, until)
	return false
}

// take lets ev happen, if it still is one for anybody.
func (e *Engine) take(ev event) bool {
	if ev.to == World {
		e.events++
		e.handler.Due(World, ev.timer)
		return true
	}
	n := &e.nodes[ev.to]
	switch {
	case n.dead || n.life != ev.life:
		return false
	case ev.message != nil && e.held(ev):
		return false
	case n.paused:
		n.asleep = append(n.asleep, ev)
		return false
	}
	e.events++
	if ev.message != nil {
		e.handler.Deliver(int(ev.to), int(ev.from), ev.message)
	} else {
		e.handler.Due(int(ev.to), ev.timer)
	}
	return true
}
