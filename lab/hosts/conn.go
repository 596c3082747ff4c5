package hosts

import (
	"errors"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/lab/sim"
)

// conn is a connection of two processes. What goes over it arrives in order, or not at all.
type conn struct {
	ends  [2]end // the end that has dialled, and the other
	name  string // of the gateway that was dialled
	doubt bool   // it is in the list of connections to check
}

// end is one of its ends.
type end struct {
	host  *Host
	run   int // of the process; 0: not known yet
	id    core.ID
	state state
	// lost is since when nothing comes, and owed since when the other end owes something then;
	// never: it is not so.
	lost, owed time.Duration
	way        time.Duration // how long packets take to get here, smoothed
	// stuck: a long packet of this end does not get to the other one. What is behind it waits.
	stuck bool
	held  []*packet
	said  *linked // what the other end has said last
	calls []call  // letters without an answer
	count uint64  // of letters
}

type state uint8

const (
	shaking state = iota
	open
	closed
)

const never = time.Duration(-1)

var (
	errRefused = errors.New("connection refused")
	errTimeout = errors.New("no answer")
)

type (
	// shake is one step of the round trips in which a connection begins.
	shake struct {
		conn *conn
		n    int
	}
	// packet is what a connection carries.
	packet struct {
		conn *conn
		m    any
		long bool
		sent time.Duration
	}
	// again is what was lost, sent again.
	again struct{ conn *conn }
	// reset says that an end is closed.
	reset struct{ conn *conn }
)

// shakes is the number of steps until the end that has dialled has the connection; the other end has it
// one step later. The steps are TCP's, TLS's, the hellos, and long packets both ways.
const shakes = 5

// side returns which end a host is.
func (c *conn) side(h *Host) int {
	if c.ends[0].host == h {
		return 0
	}
	return 1
}

// dial begins a connection. Who is not there refuses; where no packet comes back, a dial takes as
// long as it may.
func (h *Host) dial(d core.Dial) {
	i := slices.IndexFunc(h.hosts, func(o *Host) bool { return o.Name+":7080" == d.Addr })
	other := h.hosts[i]
	c := &conn{name: d.Name, ends: [2]end{
		{host: h, run: h.run, id: h.Core.ID(), lost: never, owed: never}, {host: other, lost: never, owed: never},
	}}
	n := uint64(len(h.dials))
	h.dials = append(h.dials, c)
	passes := h.reaches(other)
	switch {
	case passes && other.Core == nil && !other.off:
		h.After(h.cfg.Network.Delay(h.Index, i, h.Rand())+h.cfg.Network.Delay(i, h.Index, h.Rand()), sim.Timer{Kind: timerRefuse, Arg: n})
		return
	case passes && !other.off:
		h.After(d.Most, sim.Timer{Kind: timerDial, Arg: n})
	default:
		h.After(d.First, sim.Timer{Kind: timerDial, Arg: n})
	}
	if !h.bars[[2]int{h.Index, i}] {
		h.shake(c, other, 0)
	}
}

// reaches reports that packets pass both ways between two hosts, and that this one may open
// connections.
func (h *Host) reaches(other *Host) bool {
	a, b := h.Index, other.Index
	return !h.IsCut(a, b) && !h.IsCut(b, a) && !h.bars[[2]int{a, b}]
}

func (h *Host) shake(c *conn, to *Host, n int) {
	if !h.narrows[[2]int{h.Index, to.Index}] { // else the long packets in it are lost
		h.Engine.Send(h.Index, to.Index, &shake{c, n})
	}
}

// dialed tells the core what has become of a dial.
func (h *Host) dialed(c *conn, err error) {
	if e := &c.ends[0]; e.run == h.run && e.state == shaking {
		e.state = closed
		h.Step(core.Dialed{Name: c.name, Err: err})
	}
}

// shaken takes in a step of a connection that begins.
func (h *Host) shaken(s *shake) {
	c, side := s.conn, s.n&1^1
	e, other := &c.ends[side], c.ends[1-side].host
	if side == 1 && s.n == 0 {
		e.run, e.id = h.run, h.Core.ID()
	}
	switch {
	case e.run != h.run || e.state == closed:
		h.Engine.Send(h.Index, other.Index, &reset{c})
	case s.n < shakes:
		h.shake(c, other, s.n+1)
	default:
		h.begin(c, side)
	}
}

// begin takes a connection into use, unless another connection stays in use.
func (h *Host) begin(c *conn, side int) {
	e, other := &c.ends[side], &c.ends[1-side]
	before := h.cur[other.host.Index]
	if before != nil && !c.replaces(before, h) {
		if side == 0 {
			h.dialed(c, nil)
		}
		h.hangUp(c)
		return
	}
	if before != nil {
		h.close(before, true, "replaced")
	}
	e.state = open
	h.cur[other.host.Index] = c
	if side == 0 {
		h.shake(c, other.host, shakes+1)
	}
	h.Tracef("has a connection to %d", other.host.Index)
	h.Step(core.Connected{To: other.id, Name: other.host.Name})
	if side == 0 {
		h.Step(core.Dialed{Name: c.name})
	}
	if h.Core != nil && e.state == open {
		h.doubted(c)
		h.sayLink(other.host.Index)
	}
}

// replaces reports that a connection takes the place of the one before, at a host. An end dials
// only if it has none, so that what the other end has still is dead; if both dial at the
// same time, the one of the lower name stays. See wire.Pair.
func (c *conn) replaces(before *conn, h *Host) bool {
	theirs := before.ends[1-before.side(h)]
	if theirs.state == closed || theirs.run != theirs.host.run {
		return true
	}
	return before.ends[0].host != c.ends[0].host && c.ends[0].host.Index < before.ends[0].host.Index
}

// hangUp has the other end told that this one is closed.
func (h *Host) hangUp(c *conn) {
	side := c.side(h)
	c.ends[side].state = closed
	h.Engine.Send(h.Index, c.ends[1-side].host.Index, &reset{c})
}

// close closes a host's end. Tell: the other end is told.
func (h *Host) close(c *conn, tell bool, why string) {
	e, other := &c.ends[c.side(h)], &c.ends[1-c.side(h)]
	if e.run != h.run || e.state == closed {
		return
	}
	was := e.state
	if tell {
		h.hangUp(c)
	}
	if was == shaking && c.side(h) == 0 {
		var err error
		if h.cur[other.host.Index] == nil {
			err = errRefused
		}
		h.dialed(c, err)
	}
	e.state, e.held = closed, nil
	if was != open {
		return
	}
	h.cur[other.host.Index] = nil
	h.Tracef("loses the connection to %d: %s", other.host.Index, why)
	h.dropCalls(e)
	h.Step(core.Disconnected{From: other.id})
}

// post puts something on its way, if there is a connection. It reports whether there is.
func (h *Host) post(to int, m any) bool {
	c := h.cur[to]
	if c == nil {
		return false
	}
	if e := &c.ends[c.side(h)]; e.lost != never && e.owed == never {
		e.owed = h.Now()
	}
	h.Engine.Send(h.Index, to, &packet{c, m, h.long(m), h.Now()})
	return true
}

// long reports that something does not fit into a short packet.
func (h *Host) long(m any) bool {
	switch m := m.(type) {
	case core.Message:
		return m.Kind() == "append" || m.Kind() == "snapshot"
	case *message:
		return h.cfg.App.Long(m.m)
	case *letter:
		return h.cfg.App.Long(m.m)
	case *linked, *answer:
		return false
	default:
		return h.cfg.App.Long(m)
	}
}

// kind names something for [World.Watch].
func (w *World) kind(m any) string {
	switch m := m.(type) {
	case core.Message:
		return m.Kind()
	case *message:
		return w.cfg.App.Kind(m.m)
	case *letter:
		return w.cfg.App.Kind(m.m)
	case *linked, *answer:
		return ""
	default:
		return w.cfg.App.Kind(m)
	}
}

// text writes what a packet carries for the trace.
func text(m any) any {
	switch m := m.(type) {
	case *message:
		return m.m
	case *letter:
		return m.m
	default:
		return m
	}
}

// send sends a message of the core.
func (h *Host) send(s core.Send) {
	if h.Mute && s.Message.Grant != nil {
		return
	}
	for i, c := range h.cur {
		if c != nil && c.ends[1-c.side(h)].id == s.To {
			h.post(i, s.Message)
			return
		}
	}
}

// Tell sends something of the App to another process; it is lost without a connection. What a
// process tells itself arrives at once.
func (h *Host) Tell(to int, m any) {
	if to == h.Index {
		h.cfg.App.Receive(h, to, m)
		return
	}
	h.post(to, m)
}

// arrived takes in a packet.
func (h *Host) arrived(p *packet) {
	c := p.conn
	e, other := &c.ends[c.side(h)], &c.ends[1-c.side(h)]
	from := other.host.Index
	switch {
	case e.run != h.run || e.state != open:
		h.Engine.Send(h.Index, from, &reset{c})
		return
	case other.stuck || p.long && h.narrows[[2]int{from, h.Index}]:
		other.stuck, other.held = true, append(other.held, p)
		h.doubted(c)
		return
	}
	if e.way == 0 {
		e.way = h.Now() - p.sent
	}
	e.way += (h.Now() - p.sent - e.way) / 8
	h.take(c, e, other, p.m)
}

// arrivedAgain takes in the packets that were lost, and those that have waited behind them.
func (h *Host) arrivedAgain(c *conn) {
	other := &c.ends[1-c.side(h)]
	if h.narrows[[2]int{other.host.Index, h.Index}] {
		return
	}
	held := other.held
	other.stuck, other.held = false, nil
	for _, p := range held {
		h.arrived(p)
	}
}

// take has what a packet carries taken in.
func (h *Host) take(c *conn, e, other *end, m any) {
	run, kind, from := h.run, h.kind(m), other.host.Index
	if kind != "" && h.before != nil {
		h.before(h.Index, kind)
	}
	if h.Core == nil || h.run != run || e.state != open {
		return
	}
	if h.cfg.Trace != nil && kind != "heartbeat" && kind != "alive" && kind != "renew" && kind != "grant" && kind != "" {
		h.Tracef("gets from %d: %v", from, text(m))
	}
	switch m := m.(type) {
	case core.Message:
		h.Step(core.Received{From: other.id, Message: m, Trip: e.way + other.way})
	case *linked:
		h.heardLink(c, e, m)
	case *message:
		h.receive(m)
	case *letter:
		h.takeLetter(c, m)
	case *answer:
		h.answered(e, m)
	default:
		h.cfg.App.Receive(h, from, m)
	}
	if kind != "" && h.after != nil {
		h.after(h.Index, kind)
	}
}
