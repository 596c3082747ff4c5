package hosts

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/sim"
)

// Host is a machine with a clock and a disk, with or without a process on it. The exported fields
// above Core may be changed before a process is started.
type Host struct {
	*World
	Index int
	Name  string
	// Memory: its processes keep nothing.
	Memory bool
	// Expect and Joining are as in [core.Config].
	Expect  int
	Joining bool
	Witness bool
	// Write is how long a write takes, half of it more or less.
	Write time.Duration
	// Mute: it grants no leases.
	Mute bool

	// Core is the process's core; nil: no process runs.
	Core *core.Core
	// Left: it has left in order.
	Left bool
	// Boot is the incarnation's.
	Boot string
	// Standing is the incarnation's, by the host's clock.
	Standing core.Standing

	disk     disk
	off      bool // no packet comes from it
	leaving  bool
	open     int     // commands that it has asked for, and that are not agreed on
	id       core.ID // of the newest process
	run      int     // counts processes
	events   []core.Event
	stepping bool
	wake     time.Duration // when the core wants to be called, by the host's clock
	armed    time.Duration // when the newest timer for that runs out, true time; 0: there is none
	wakes    uint64        // numbers these timers
	cur      []*conn       // by host
	dials    []*conn       // by number of timer
	self     kmutex.Node   // whose links these are
	links    []*link       // in order of peer
	failed   []any         // letters that have not left
	known    []core.Gateway
	seen     []time.Duration // when discovery saw a gateway alive, by host
	tags     uint64
	bucket   time.Duration // in which the newest steps were, and how many
	steps    int
}

// Start starts a process, with what the disk has.
func (h *Host) Start() {
	if h.Core != nil {
		return
	}
	h.Engine.Start(h.Index)
	h.run++
	h.ids++
	stored := core.NewStored(core.ID(1000*h.ids+h.Rand().Uint64N(1000)), h.Name)
	if err := h.disk.load(stored); err != nil {
		h.Fail(fmt.Errorf("%s: %w", h.Name, err))
		return
	}
	expect, joining := h.Expect, h.Joining
	if h.Memory && h.run > 1 {
		expect, joining = 1, true // else it could found another cluster
	}
	h.Boot, h.Standing, h.Left = fmt.Sprintf("%s/%d", h.Name, h.run), core.Standing{}, false
	h.off, h.leaving, h.open = false, false, 0
	c, err := core.New(core.Config{
		Stored: stored, Durable: !h.Memory, Name: h.Name, Boot: h.Boot, Addr: h.Name + ":7080",
		Expect: expect, Joining: joining, Witness: h.Witness, Lease: h.cfg.Lease, Seed: h.Rand().Uint64(),
	}, h.Clock())
	if err != nil {
		h.Fail(fmt.Errorf("%s: %w", h.Name, err))
		return
	}
	h.id = c.ID()
	h.Core, h.wake, h.armed, h.self, h.links, h.known, h.failed, h.dials = c, 0, 0, 0, nil, nil, nil, nil
	h.seen = make([]time.Duration, len(h.hosts))
	h.Tracef("starts, process %x", uint64(c.ID()))
	h.doubtAll()
	h.cfg.App.Begin(h)
	h.Step(core.Woken{})
	h.gossip()
}

// Kill ends the process at once, as SIGKILL does: the kernel closes its connections. Of what
// it was writing, some is on disk.
func (h *Host) Kill() {
	if h.Core == nil {
		return
	}
	h.Tracef("is killed")
	h.cfg.App.End(h)
	h.disk.crash(h)
	for _, c := range h.cur {
		if c != nil {
			h.hangUp(c)
		}
	}
	for _, c := range h.dials {
		c.ends[0].state = closed
	}
	clear(h.cur)
	h.Core, h.Standing, h.events = nil, core.Standing{}, nil
	h.Engine.Kill(h.Index)
	h.doubtAll()
	h.gossip()
}

// Crash ends the process as Kill does, and of its host no packet comes any more until the next
// process: the power is off.
func (h *Host) Crash() {
	for _, c := range h.cur {
		if c != nil {
			c.ends[c.side(h)].state = closed
		}
	}
	clear(h.cur)
	h.off = true
	h.Kill()
}

// Pause stops the process, as SIGSTOP does.
func (h *Host) Pause() {
	h.Tracef("is paused")
	h.Engine.Pause(h.Index)
	h.doubtAll()
	h.gossip()
}

// Resume lets it go on.
func (h *Host) Resume() {
	if !h.Paused(h.Index) {
		return
	}
	h.Tracef("goes on")
	h.Engine.Resume(h.Index)
	for _, c := range h.cur {
		if c != nil { // it could not hear anything
			e := &c.ends[c.side(h)]
			e.lost, e.owed = never, never
		}
	}
	h.doubtAll()
	h.gossip()
}

// Works reports whether a process runs, and is not paused.
func (h *Host) Works() bool { return h.Core != nil && !h.Paused(h.Index) }

// Clock returns what the host's clock shows.
func (h *Host) Clock() time.Duration { return h.Engine.Clock(h.Index) }

// After sets a timer by the host's clock, for this process.
func (h *Host) After(d time.Duration, t sim.Timer) { h.Engine.After(h.Index, d, t) }

// Tracef adds a line to the trace.
func (h *Host) Tracef(format string, args ...any) {
	if h.cfg.Trace != nil {
		h.World.Tracef(strconv.Itoa(h.Index)+"/n"+strconv.FormatUint(uint64(h.Standing.Node), 10), format, args...)
	}
}

// Stands reports that the incarnation may have requests in flight.
func (h *Host) Stands() bool { return h.Core != nil && h.Standing.Until > h.Clock() }

// Propose asks to have a command agreed on.
func (h *Host) Propose(cmd views.Command) {
	h.tags++
	h.open++
	h.Step(core.Propose{Tag: h.tags, Command: cmd})
}

// Open returns how many commands are not agreed on yet that this process has asked for.
func (h *Host) Open() int { return h.open }

// Step has the core take in an event.
func (h *Host) Step(e core.Event) {
	h.events = append(h.events, e)
	if _, leaves := e.(core.Leave); leaves {
		h.leaving = true
	}
	if h.stepping {
		return
	}
	h.stepping = true
	defer func() { h.stepping = false }()
	for run := h.run; len(h.events) > 0 && h.Core != nil && h.run == run; {
		e := h.events[0]
		h.events = h.events[1:]
		if h.busy() {
			return
		}
		h.effects(h.Core.Step(h.Clock(), e))
	}
}

// busy notes a step, and fails if there are so many that the core never rests.
func (h *Host) busy() bool {
	const bucket = 10 * time.Millisecond
	if at := h.Now() / bucket; at != h.bucket {
		h.bucket, h.steps = at, 0
	}
	if h.steps++; h.steps == 5000+100*len(h.hosts) {
		h.breach("%d steps within %v: it does not come to rest", h.steps, bucket)
	}
	return h.steps >= 5000+100*len(h.hosts)
}

// effects carries out what an event has led to.
func (h *Host) effects(out core.Effects) {
	run, app := h.run, h.cfg.App
	gone := func() bool { return h.run != run || h.Core == nil }
	for _, l := range out.Log {
		h.Tracef("%s %v", l.Text, l.Attrs)
	}
	h.judgeCore()
	h.open -= len(out.Results)
	h.disk.put(h, out.Write)
	for _, s := range out.Send {
		h.send(s)
	}
	for _, d := range out.Dial {
		h.dial(d)
	}
	if out.Boot != "" {
		h.Boot = out.Boot
		app.Begin(h)
		h.gossip()
	}
	if out.View != nil {
		h.published(out.View)
		app.Follow(h, out.View)
	}
	if out.Standing != nil && !gone() {
		h.Standing = *out.Standing
		app.Stand(h, *out.Standing)
	}
	switch {
	case gone():
		return
	case out.Failed != nil:
		h.Fail(fmt.Errorf("%s: %w", h.Name, out.Failed))
		return
	case out.Left:
		app.Left(h)
	}
	if h.wake = out.Wake; h.Core != nil && h.run == run {
		h.arm()
	}
}

// arm sets a timer for the core, unless one runs out in time.
func (h *Host) arm() {
	d := max(h.wake-h.Clock(), time.Microsecond)
	if h.armed > h.Now() && h.armed <= h.Now()+d {
		return
	}
	h.armed = h.Now() + d
	h.wakes++
	h.After(d, sim.Timer{Kind: timerWake, Arg: h.wakes})
}

func (h *Host) due(t sim.Timer) {
	switch t.Kind {
	case timerWake:
		if t.Arg != h.wakes {
			return
		}
		h.armed = 0
		if h.Clock() < h.wake {
			h.arm()
			return
		}
		h.Step(core.Woken{})
	case timerDisk:
		h.disk.written(h)
	case timerDial:
		h.dialed(h.dials[t.Arg], errTimeout)
	case timerRefuse:
		h.dialed(h.dials[t.Arg], errRefused)
	case timerFailed:
		h.loseLetters()
	default:
		h.cfg.App.Due(h, t)
	}
}
