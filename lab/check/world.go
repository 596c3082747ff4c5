package check

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// world is one state of a small system, and how it came about.
type world struct {
	scope    Scope
	protocol protocol.Protocol
	clients  []client
	flight   map[[2]int][]any
	timers   []timer
	downs    [][2]int // nodes that have still to be told, and the node that has crashed
	last     protocol.Request
	path     []action

	crashes, leaves, joins int
}

// client is what happens at a node.
type client struct {
	life    life
	asked   int
	request protocol.Request // 0: none
	granted bool
}

type life uint8

const (
	inside life = iota
	outside
	joining
	leaving
	crashed
)

func (c *client) running() bool { return c.life != outside && c.life != crashed }

type timer struct {
	node  int
	timer sim.Timer
}

// action is one step.
type action struct {
	kind     actionKind
	node     int
	from, at int // of a message; which timer
}

type actionKind uint8

const (
	request actionKind = iota
	release
	deliver
	due
	crash
	down
	leave
	join
)

func (a action) String() string {
	switch a.kind {
	case deliver:
		return fmt.Sprintf("deliver %d -> %d (%d)", a.from, a.node, a.at)
	case due:
		return fmt.Sprintf("timer of %d", a.node)
	case down:
		return fmt.Sprintf("%d is told that %d is down", a.node, a.from)
	default:
		return fmt.Sprintf("%s %d", [...]string{request: "request", release: "release", crash: "crash", leave: "leave", join: "join"}[a.kind], a.node)
	}
}

// actions lists what can happen next.
func (w *world) actions() (all []action) {
	moves, _ := protocol.As[protocol.Moving](w.protocol)
	for i := range w.clients {
		c := &w.clients[i]
		if c.life == inside && c.request == 0 && c.asked < w.scope.Requests {
			all = append(all, action{kind: request, node: i})
		}
		if c.granted {
			all = append(all, action{kind: release, node: i})
		}
		if c.running() && w.crashes > 0 && w.members() > 1 {
			all = append(all, action{kind: crash, node: i})
		}
		if moves != nil && c.life == inside && w.leaves > 0 && w.members() > 1 {
			all = append(all, action{kind: leave, node: i})
		}
		if moves != nil && c.life == outside && w.joins > 0 {
			all = append(all, action{kind: join, node: i})
		}
	}
	quiet := true
	for from := range w.clients {
		for to := range w.clients {
			for at := range w.flight[[2]int{from, to}] {
				quiet = false
				if at == 0 || w.scope.AnyOrder {
					all = append(all, action{kind: deliver, node: to, from: from, at: at})
				}
			}
		}
	}
	for _, d := range w.downs {
		all = append(all, action{kind: down, node: d[0], from: d[1]})
	}
	if quiet || !w.scope.Bounded {
		for i, t := range w.timers {
			if slices.Index(w.timers, t) == i {
				all = append(all, action{kind: due, node: t.node, at: i})
			}
		}
	}
	return all
}

func (w *world) members() (n int) {
	for i := range w.clients {
		if w.clients[i].life == inside {
			n++
		}
	}
	return n
}

// do lets an action happen and judges.
func (w *world) do(a action) (err error) {
	w.path = append(slices.Clip(w.path), a)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v, after%s", ErrPanic, r, describe(w.path))
		}
	}()
	w.step(a)
	w.moved(a.node)
	running := 0
	for i := range w.clients {
		if w.clients[i].granted {
			running++
		}
	}
	if running > w.scope.K {
		return fmt.Errorf("%w: %d, after%s", ErrUnsafe, running, describe(w.path))
	}
	return nil
}

func (w *world) step(a action) {
	c := &w.clients[a.node]
	switch a.kind {
	case request:
		w.last++
		c.asked++
		c.request = w.last
		w.protocol.Acquire(a.node, c.request)
	case release:
		t := c.request
		c.request, c.granted = 0, false
		w.protocol.Release(a.node, t)
	case deliver:
		link := [2]int{a.from, a.node}
		m := w.flight[link][a.at]
		w.flight[link] = slices.Delete(slices.Clone(w.flight[link]), a.at, a.at+1)
		w.protocol.Deliver(a.node, a.from, m)
	case due:
		t := w.timers[a.at]
		w.timers = slices.Delete(slices.Clone(w.timers), a.at, a.at+1)
		w.protocol.Due(t.node, t.timer)
	case crash:
		w.crashes--
		w.gone(a.node, crashed)
		if _, ok := protocol.As[protocol.Detecting](w.protocol); ok {
			for i := range w.clients {
				if w.clients[i].running() {
					w.downs = append(w.downs, [2]int{i, a.node})
				}
			}
		}
	case down:
		w.downs = slices.DeleteFunc(slices.Clone(w.downs), func(d [2]int) bool { return d == [2]int{a.node, a.from} })
		p, _ := protocol.As[protocol.Detecting](w.protocol)
		p.Down(a.node, a.from)
	case leave:
		w.leaves--
		w.leave(a.node)
	case join:
		w.joins--
		c.life = joining
		via := slices.IndexFunc(w.clients, func(c client) bool { return c.life == inside })
		p, _ := protocol.As[protocol.Moving](w.protocol)
		p.Join(a.node, via)
	}
}

// leave has a node leave. A request that waits is cancelled.
func (w *world) leave(node int) {
	c := &w.clients[node]
	c.life = leaving
	if t := c.request; t != 0 && !c.granted {
		c.request = 0
		w.protocol.Cancel(node, t)
	}
	p, _ := protocol.As[protocol.Moving](w.protocol)
	p.Leave(node)
}

// moved looks whether a node has completed its arrival or departure.
func (w *world) moved(node int) {
	c := &w.clients[node]
	if c.life != joining && c.life != leaving {
		return
	}
	p, _ := protocol.As[protocol.Moving](w.protocol)
	switch in := p.In(node); {
	case c.life == joining && in:
		c.life = inside
	case c.life == leaving && !in:
		w.gone(node, outside)
	}
}

// gone takes away a node's state and the messages on their way to it.
func (w *world) gone(node int, l life) {
	w.clients[node] = client{life: l, asked: w.clients[node].asked}
	protocol.Forget(w.protocol, node)
	for from := range w.clients {
		delete(w.flight, [2]int{from, node})
	}
	w.timers = slices.DeleteFunc(slices.Clone(w.timers), func(t timer) bool { return t.node == node })
	w.downs = slices.DeleteFunc(slices.Clone(w.downs), func(d [2]int) bool { return d[0] == node })
}

// done reports whether nobody waits, leaves or joins, and nobody is in the
// critical section.
func (w *world) done() bool {
	return !slices.ContainsFunc(w.clients, func(c client) bool { return c.request != 0 || c.life == joining || c.life == leaving })
}

// encode writes down all that decides what can happen from here.
func (w *world) encode() []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, w.clients, w.crashes, w.leaves, w.joins, ";")
	slices.SortFunc(w.downs, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	fmt.Fprint(&b, w.downs, ";")
	var timers []string
	for _, t := range w.timers {
		timers = append(timers, fmt.Sprint(t))
	}
	slices.Sort(timers)
	fmt.Fprint(&b, timers, ";")
	for from := range w.clients {
		for to := range w.clients {
			var messages []string
			for _, m := range w.flight[[2]int{from, to}] {
				var one bytes.Buffer
				dump(&one, reflect.ValueOf(m))
				messages = append(messages, one.String())
			}
			if w.scope.AnyOrder {
				slices.Sort(messages)
			}
			if len(messages) > 0 {
				fmt.Fprint(&b, from, to, messages)
			}
		}
	}
	dump(&b, reflect.ValueOf(w.protocol))
	return b.Bytes()
}

var hostType = reflect.TypeFor[protocol.Host]()

// dump writes a value with all that it points to, except the protocol's host and
// functions. The value must have no cycles.
func dump(b *bytes.Buffer, v reflect.Value) {
	switch v.Kind() {
	case reflect.Invalid, reflect.Func, reflect.Chan:
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() || v.Type() == hostType {
			b.WriteByte('-')
			return
		}
		if v.Kind() == reflect.Interface {
			b.WriteString(v.Elem().Type().Name())
		}
		dump(b, v.Elem())
	case reflect.Struct:
		b.WriteByte('{')
		for i := range v.NumField() {
			dump(b, v.Field(i))
			b.WriteByte(' ')
		}
		b.WriteByte('}')
	case reflect.Slice, reflect.Array:
		b.WriteByte('[')
		for i := range v.Len() {
			dump(b, v.Index(i))
			b.WriteByte(' ')
		}
		b.WriteByte(']')
	case reflect.Map:
		var entries []string
		for _, key := range v.MapKeys() {
			var e bytes.Buffer
			dump(&e, key)
			e.WriteByte(':')
			dump(&e, v.MapIndex(key))
			entries = append(entries, e.String())
		}
		slices.Sort(entries)
		fmt.Fprint(b, entries)
	default:
		fmt.Fprint(b, v)
	}
}
