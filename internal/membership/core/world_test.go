package core

import (
	"bytes"
	"cmp"
	"container/heap"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
	"go.etcd.io/raft/v3"
)

const ms = time.Millisecond

// world is some hosts with a process each, in true time: a network of connections that break, disks that take
// their time, clocks that run too fast or too slow, and a gossip that says what is so, a little
// later. What all of them say is held against what a view, a lease and a leader promise.
type world struct {
	r      *rand.Rand
	now    time.Duration
	events events
	order  int
	lease  time.Duration
	hosts  []*host
	// cut are the ways that nothing passes, from the first host to the second.
	cut   map[[2]int]bool
	delay time.Duration // of a message, one way; a fifth more or less
	ids   uint64
	trace *strings.Builder
	errs  []error

	leaders map[uint64]ID     // by term
	agreed  map[uint64]string // digest by index
	seen    map[uint64]string // view by number
	expired map[kmutex.Node]uint64
	newest  uint64        // view
	viewed  time.Duration // when there was a new view last
	gap     time.Duration // longest time without a new view
	gapped  bool
	tags    uint64
	steps   uint64
	calm    bool // nothing that was planned happens any more
}

// host is a machine, with or without a process.
type host struct {
	w       *world
	i       int
	name    string
	memory  bool
	expect  int
	joining bool
	witness bool
	disk    [][]byte
	writing []Write
	busy    bool
	write   time.Duration // how long a write takes
	hangs   bool          // no write ends
	hung    func()        // the one that does not
	writes  int           // how many there were
	crashAt int           // when so many are on disk its process ends; 0: never
	three   int           // how much it has since three vote
	rate    float64
	offset  time.Duration

	boots    int
	run      int // counts processes
	core     *Core
	silent   bool // it is up, and nothing comes from it or gets to it
	paused   bool
	inbox    []Event
	view     *views.View
	stand    Standing
	left     bool
	wake     time.Duration // true time of the newest timer
	conns    map[int]*link // by host
	failed   error
	bucket   time.Duration
	inBucket int
	known    []Gateway
}

// link is a connection of two processes.
type link struct {
	runs  [2]int // of the processes, the lower host's first
	queue [2][]Message
	last  [2]time.Duration // when the newest message arrives, by direction
	since [2]time.Duration // since when something waits
}

type event struct {
	at    time.Duration
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), e[i].order-e[j].order) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any     { last := (*e)[len(*e)-1]; *e = (*e)[:len(*e)-1]; return last }

func hostName(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return fmt.Sprintf("z%02d", i)
}

func newWorld(seed uint64, hosts int, lease time.Duration) *world {
	w := &world{
		r: rand.New(rand.NewPCG(seed, 0x6b67617465)), lease: lease, cut: make(map[[2]int]bool), delay: ms,
		leaders: make(map[uint64]ID), agreed: make(map[uint64]string), seen: make(map[uint64]string), expired: make(map[kmutex.Node]uint64),
	}
	for i := range hosts {
		h := &host{w: w, i: i, name: hostName(i), rate: 1, write: ms, expect: hosts, conns: make(map[int]*link)}
		h.offset = time.Duration(w.r.Int64N(int64(time.Hour)))
		w.hosts = append(w.hosts, h)
	}
	return w
}

func (w *world) after(d time.Duration, do func()) {
	w.order++
	heap.Push(&w.events, event{w.now + max(d, 0), w.order, do})
}

// runUntil lets everything happen up to an instant, or until stop says so.
func (w *world) runUntil(until time.Duration, stop func() bool) bool {
	for len(w.events) > 0 && w.events[0].at <= until && len(w.errs) == 0 {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
		if stop != nil && stop() {
			return true
		}
	}
	if stop == nil {
		w.now = max(w.now, until)
	}
	return false
}

func (w *world) runFor(d time.Duration) { w.runUntil(w.now+d, nil) }

func (w *world) fail(format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf("at %v: "+format, append([]any{w.now}, args...)...))
}

func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%10.4f "+format+"\n", append([]any{w.now.Seconds()}, args...)...)
	}
}

func (h *host) clock() time.Duration { return h.offset + time.Duration(h.rate*float64(h.w.now)) }

// start begins a process, with what the disk has.
func (h *host) start() {
	h.boots++
	h.run++
	h.w.ids++
	stored := NewStored(ID(1000*h.w.ids+h.w.r.Uint64N(1000)), h.name)
	if !h.memory {
		for _, r := range h.disk {
			if err := stored.Load(r); err != nil {
				h.w.fail("%s: %v", h.name, err)
				return
			}
		}
	} else if h.boots > 1 {
		h.expect, h.joining = 1, true // else it could found another cluster
	}
	var err error
	h.core, err = New(Config{
		Stored: stored, Durable: !h.memory, Name: h.name, Boot: fmt.Sprintf("%s%d", h.name, h.boots), Addr: h.name + ":1",
		Expect: h.expect, Joining: h.joining, Witness: h.witness, Lease: h.w.lease, Seed: h.w.r.Uint64(),
	}, h.clock())
	if err != nil {
		h.w.fail("%s: %v", h.name, err)
		return
	}
	h.view, h.stand, h.wake, h.left, h.silent, h.paused, h.inbox, h.writing, h.busy, h.failed, h.hung = h.core.View(), Standing{}, 0, false, false, false, nil, nil, false, nil, nil
	h.w.tracef("%s starts, process %x", h.name, uint64(h.core.ID()))
	for _, other := range h.w.hosts { // what is left of the process before is refused
		if l := h.conns[other.i]; l != nil {
			h.w.breakLink(h, other, l)
		}
	}
	h.step(Woken{})
	h.w.gossip(0)
}

// kill ends a process. Of what it was writing, some is on disk.
func (h *host) kill(silently bool) {
	if h.core == nil {
		return
	}
	h.w.tracef("%s is killed, silently: %t", h.name, silently)
	for _, wr := range h.writing[:h.w.r.IntN(len(h.writing)+1)] {
		h.disk = append(h.disk, wr.Record)
	}
	h.core, h.stand, h.writing, h.inbox, h.paused = nil, Standing{}, nil, nil, false
	h.silent = silently
	for _, other := range h.w.hosts {
		l := h.conns[other.i]
		if l == nil {
			continue
		}
		if silently {
			continue // the other end finds out
		}
		h.w.after(h.w.delay, func() { h.w.breakLink(h, other, l) })
	}
	h.w.gossip(h.w.lease / 3)
}

// step has the process take in an event.
func (h *host) step(e Event) {
	if h.core == nil || h.failed != nil {
		return
	}
	if h.paused {
		h.inbox = append(h.inbox, e)
		return
	}
	h.w.steps++
	if h.w.now/(10*ms) != h.bucket {
		h.bucket, h.inBucket = h.w.now/(10*ms), 0
	}
	if h.inBucket++; h.inBucket == 5000 {
		h.w.fail("%s is busy: %s", h.name, h.core.wakes())
	}
	was := h.core.state
	out := h.core.Step(h.clock(), e)
	if h.core.state == raft.StateLeader && was != raft.StateLeader {
		h.w.tracef("%s leads term %d", h.name, h.core.Term())
	}
	h.effects(out)
	h.w.judge(h)
}

func (h *host) effects(out Effects) {
	w, run := h.w, h.run
	for _, l := range out.Log {
		w.tracef("%s: %s %v", h.name, l.Text, l.Attrs)
	}
	h.writing = append(h.writing, out.Write...)
	h.flush()
	for _, s := range out.Send {
		h.deliver(s)
	}
	for _, d := range out.Dial {
		h.dial(d)
	}
	if out.View != nil {
		h.view = out.View
		w.published(h, out.View)
	}
	if out.Standing != nil {
		h.stand = *out.Standing
		if h.stand.Void && !h.left {
			w.after(time.Duration(w.r.Int64N(int64(20*ms))), func() {
				if h.run == run {
					h.step(Rejoin{})
				}
			})
		}
	}
	if out.Boot != "" {
		w.gossip(0)
	}
	if out.Failed != nil {
		w.tracef("%s fails: %v", h.name, out.Failed)
		w.fail("%s: %v", h.name, out.Failed)
	}
	if out.Left {
		h.left = true
	}
	at := w.now + max(time.Duration(float64(out.Wake-h.clock())/h.rate), time.Microsecond)
	if h.wake <= w.now || at < h.wake {
		h.wake = at
		w.after(at-w.now, func() {
			if h.run == run && h.wake == at {
				h.wake = 0
				h.step(Woken{})
			}
		})
	}
}

// flush has the disk write what waits, in one sync.
func (h *host) flush() {
	if h.busy || h.hangs || len(h.writing) == 0 {
		return
	}
	h.busy = true
	n, run := len(h.writing), h.run
	took := h.write/2 + time.Duration(h.w.r.Int64N(int64(h.write)+1))
	var end func()
	end = func() {
		switch {
		case h.run != run || h.core == nil:
			return
		case h.hangs:
			h.hung = end
			return
		}
		h.busy = false
		done := h.writing[:n]
		h.writing = slices.Clone(h.writing[n:])
		for _, wr := range done {
			h.disk = append(h.disk, wr.Record)
			if h.writes++; h.writes == h.crashAt {
				h.writing = nil // of what comes after it, nothing is on disk
				h.kill(false)
				h.w.after(h.w.lease/2, h.start)
				return
			}
		}
		h.step(Written{done[n-1].Number})
		h.flush()
	}
	h.w.after(took, end)
}

// hang stops the disk, or lets it go on.
func (h *host) hang(hangs bool) {
	h.hangs = hangs
	if hung := h.hung; !hangs && hung != nil {
		h.hung = nil
		hung()
	}
	h.flush()
}

func (w *world) trip() time.Duration {
	return w.delay*4/5 + time.Duration(w.r.Int64N(int64(w.delay)*2/5+1))
}

// passes reports that packets get from one host to another.
func (w *world) passes(a, b *host) bool {
	return !w.cut[[2]int{a.i, b.i}] && !a.silent && !b.silent
}

// dial opens a connection, unless there is one.
func (h *host) dial(d Dial) {
	w, run := h.w, h.run
	i := slices.IndexFunc(w.hosts, func(o *host) bool { return o.name+":1" == d.Addr })
	other := w.hosts[i]
	answer := func(after time.Duration, ok bool) {
		w.after(after, func() {
			if h.run == run {
				h.step(Dialed{d.Name, ok})
			}
		})
	}
	switch {
	case !w.passes(h, other) || !w.passes(other, h) || other.paused:
		answer(d.First, false)
	case other.core == nil:
		answer(2*w.trip(), false)
	case 2*w.delay > d.First:
		answer(d.First, false)
	case 6*w.delay > d.Most:
		answer(d.Most, false)
	default:
		took := 6 * w.trip()
		there := other.run
		w.after(took, func() {
			if h.run != run || h.core == nil {
				return
			}
			if other.run != there || other.core == nil || !w.passes(h, other) || !w.passes(other, h) {
				h.step(Dialed{d.Name, false})
				return
			}
			if h.conns[other.i] == nil {
				l := &link{}
				l.runs[0], l.runs[1] = h.run, other.run
				if other.i < h.i {
					l.runs[0], l.runs[1] = l.runs[1], l.runs[0]
				}
				h.conns[other.i], other.conns[h.i] = l, l
				h.step(Connected{other.core.ID(), other.name, 2 * w.delay})
				other.step(Connected{h.core.ID(), h.name, 2 * w.delay})
			}
			h.step(Dialed{d.Name, true})
		})
	}
}

// breakLink ends a connection, at both ends.
func (w *world) breakLink(a, b *host, l *link) {
	if a.conns[b.i] != l {
		return
	}
	ids := [2]ID{}
	_ = ids
	delete(a.conns, b.i)
	delete(b.conns, a.i)
	for _, ends := range [][2]*host{{a, b}, {b, a}} {
		h, other := ends[0], ends[1]
		run := l.runs[0]
		if h.i > other.i {
			run = l.runs[1]
		}
		if h.core != nil && h.run == run {
			for id, p := range h.core.peers.conns {
				if p.name == other.name {
					h.step(Disconnected{id})
					break
				}
			}
		}
	}
}

// deliver puts a message on its way.
func (h *host) deliver(s Send) {
	w := h.w
	p := h.core.peers.conns[s.To]
	if p == nil {
		return
	}
	i := slices.IndexFunc(w.hosts, func(o *host) bool { return o.name == p.name })
	other := w.hosts[i]
	l := h.conns[i]
	if l == nil {
		return
	}
	if w.trace != nil && !strings.HasPrefix(s.Message.kind(), "MsgHeartbeat") && s.Message.kind() != "renew" && s.Message.kind() != "grant" {
		w.tracef("%s -> %s: %s", h.name, other.name, s.Message.kind())
	}
	dir := 0
	if h.i > i {
		dir = 1
	}
	l.queue[dir] = append(l.queue[dir], s.Message)
	if len(l.queue[dir]) == 1 {
		l.since[dir] = w.now
		w.after(w.lease*5/8, func() { w.doubt(h, other, l, dir) })
	}
	at := max(w.now+w.trip(), l.last[dir])
	l.last[dir] = at
	w.after(at-w.now, func() { w.arrive(h, other, l, dir) })
}

// arrive delivers what waits in a direction, if it can.
func (w *world) arrive(from, to *host, l *link, dir int) {
	if from.conns[to.i] != l || !w.passes(from, to) || len(l.queue[dir]) == 0 {
		return
	}
	m := l.queue[dir][0]
	l.queue[dir] = l.queue[dir][1:]
	if len(l.queue[dir]) > 0 {
		l.since[dir] = w.now
		w.after(w.lease*5/8, func() { w.doubt(from, to, l, dir) })
	}
	if to.core == nil || from.core == nil {
		return
	}
	to.step(Received{from.core.ID(), m})
}

// doubt breaks a connection on which something has waited for long.
func (w *world) doubt(from, to *host, l *link, dir int) {
	if from.conns[to.i] == l && len(l.queue[dir]) > 0 && w.now-l.since[dir] >= w.lease*5/8 {
		w.breakLink(from, to, l)
	}
}

// setCut cuts a way, or heals it.
func (w *world) setCut(a, b int, cut bool) {
	w.cut[[2]int{a, b}] = cut
	if cut {
		return
	}
	from, to := w.hosts[a], w.hosts[b]
	dir := 0
	if a > b {
		dir = 1
	}
	if l := from.conns[b]; l != nil {
		for range l.queue[dir] {
			w.after(w.delay, func() { w.arrive(from, to, l, dir) })
		}
	}
}

func (w *world) cutBoth(a, b int, cut bool) { w.setCut(a, b, cut); w.setCut(b, a, cut) }

// isolated reports that nothing gets to a host or from it.
func (w *world) isolated(h *host) bool {
	for _, o := range w.hosts {
		if o != h && o.core != nil && w.passes(h, o) && w.passes(o, h) {
			return false
		}
	}
	return true
}

// gossip tells everybody who is there.
func (w *world) gossip(after time.Duration) {
	w.after(after+20*ms, func() {
		for _, h := range w.hosts {
			if h.core == nil {
				continue
			}
			alone := len(w.hosts) > 1 && w.isolated(h)
			known := slices.Clone(h.known)
			for _, o := range w.hosts {
				at := slices.IndexFunc(known, func(g Gateway) bool { return g.Name == o.name })
				up := o.core != nil && !o.silent && !o.paused
				if at < 0 && !up {
					continue
				}
				if at < 0 {
					known = append(known, Gateway{Name: o.name})
					at = len(known) - 1
				}
				if o == h || up && !alone && !w.isolated(o) {
					known[at] = Gateway{o.name, o.core.self.boot, o.name + ":1", o.expect, true, false}
				} else {
					known[at].Alive, known[at].Left = false, o.left
				}
			}
			h.known = known
			h.step(Gossip{slices.Clone(known)})
		}
	})
}

func (h *host) pause() { h.paused = true; h.w.tracef("%s pauses", h.name); h.w.gossip(h.w.lease / 3) }

func (h *host) resume() {
	h.paused = false
	h.w.tracef("%s goes on", h.name)
	inbox := h.inbox
	h.inbox = nil
	for _, e := range inbox {
		h.step(e)
	}
	h.w.gossip(0)
}

// stands reports that a host may have requests in flight.
func (h *host) stands() bool { return h.core != nil && h.stand.Until > h.clock() }

// published holds a view against those of the others.
func (w *world) published(h *host, v *views.View) {
	data, err := json.Marshal(struct {
		M []views.Member
		L []views.Lost
		P []views.Pool
	}{v.Members, v.Lost, v.Pools})
	if err != nil {
		panic(err)
	}
	if have, known := w.seen[v.Number]; known && have != string(data) {
		w.fail("view %d differs:\n%s\n%s", v.Number, have, data)
	}
	w.seen[v.Number] = string(data)
	if v.Number > w.newest {
		if w.gapped {
			w.gap = max(w.gap, w.now-w.viewed)
		}
		w.newest, w.viewed = v.Number, w.now
		w.tracef("view %d: %s", v.Number, describe(v))
	}
	for _, l := range v.Lost {
		if !l.Leased && !l.Witness {
			if _, known := w.expired[l.Node]; !known {
				w.expired[l.Node] = v.Number
				w.overlaps()
			}
		}
	}
}

// overlaps looks for who stands though it has been let go.
func (w *world) overlaps() {
	for _, h := range w.hosts {
		if n, expired := w.expired[h.stand.Node]; expired && h.stands() {
			w.fail("%s stands as %d until %v, and view %d says its lease is over", h.name, h.stand.Node, h.stand.Until-h.clock(), n)
		}
	}
}

func describe(v *views.View) string {
	var b strings.Builder
	for _, m := range v.Members {
		fmt.Fprintf(&b, " %s:%d", m.Name, m.Node)
	}
	for _, l := range v.Lost {
		if l.Leased {
			fmt.Fprintf(&b, " (%s:%d %s)", l.Name, l.Node, l.Reason)
		}
	}
	return b.String()
}

// judge holds a process against what all have in common.
func (w *world) judge(h *host) {
	if h.core == nil {
		return
	}
	if h.core.state == raft.StateLeader {
		term := h.core.Term()
		if other, known := w.leaders[term]; known && other != h.core.ID() {
			w.fail("term %d has two leaders", term)
		}
		w.leaders[term] = h.core.ID()
	}
	if h.three == 0 && len(h.core.Voters()) >= 3 && len(h.writing) == 0 {
		h.three = len(h.disk)
	}
	_, c := h.core.Applied()
	if c.Index == 0 {
		return
	}
	if have, known := w.agreed[c.Index]; known && have != string(c.Digest) {
		w.fail("%s: entry %d is not what was agreed on", h.name, c.Index)
	} else if !known {
		w.agreed[c.Index] = string(bytes.Clone(c.Digest))
	}
}

// leader returns the host that leads and has a majority with it, if there is one.
func (w *world) leader() *host {
	var best *host
	for _, h := range w.hosts {
		if h.core != nil && !h.paused && h.core.Leads() && (best == nil || h.core.Term() > best.core.Term()) {
			best = h
		}
	}
	return best
}

// whole reports that all these hosts stand in one view with no others.
func (w *world) whole(hosts ...*host) bool {
	for _, h := range hosts {
		if !h.stands() || h.view.Number != w.newest || len(h.view.Members) != len(hosts) {
			return false
		}
	}
	return true
}

// propose has a host set k of the pool.
func (h *host) propose(k int) {
	h.w.tags++
	h.step(Propose{h.w.tags, views.Command{SetK: &views.SetK{Name: "p", K: k}}})
}

func (h *host) define() {
	h.w.tags++
	h.step(Propose{h.w.tags, views.Command{Define: &views.Define{Name: "p", K: 1, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease}}})
}

// started returns a world whose hosts have founded a cluster, and all stand.
func started(seed uint64, hosts int, lease time.Duration) *world {
	w := newWorld(seed, hosts, lease)
	for _, h := range w.hosts {
		w.after(time.Duration(w.r.Int64N(int64(300*ms))), h.start)
	}
	return w
}
