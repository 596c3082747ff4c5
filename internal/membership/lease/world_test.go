package lease

import (
	"container/heap"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// The world runs holders and grantors under everything that may happen to them:
// clocks that are up to 9 % off, messages that are late or lost, processes that
// are stopped with their sockets full, elections at any time, and leaders that do
// not know that they lead no more. What the leaders commit goes to one log, as
// raft would have it.

var (
	seeds = flag.Int("lease.seeds", 1000, "how many worlds TestWorlds runs")
	seed  = flag.Uint64("lease.seed", 0, "run only this world")
)

type world struct {
	t      *testing.T
	r      *rand.Rand
	terms  Terms
	now    time.Duration // true time
	events events
	order  int
	procs  []*process
	// log: what has been committed.
	members, lost map[kmutex.Node]*process
	nodes         kmutex.Node
	granted       int
	expired       int
	lapsed        int
	later         int // grants refused because of a later term
}

type process struct {
	w      *world
	id     string
	rate   float64
	offset time.Duration
	paused bool
	inbox  []func()
	// cut off from the other voters, though not from those that renew.
	cut    bool
	held   []func()
	term   uint64
	votes  int
	holder *Holder
	lapsed bool
	// grantor of the term that the process leads, as far as it knows.
	grantor *Grantor
	asking  bool
}

type event struct {
	at    time.Duration
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *world) after(d time.Duration, do func()) {
	w.order++
	heap.Push(&w.events, event{w.now + d, w.order, do})
}

func (p *process) clock() time.Duration {
	return p.offset + time.Duration(p.rate*float64(p.w.now))
}

// run does something in the process, once it is not stopped.
func (p *process) run(do func()) {
	if p.paused {
		p.inbox = append(p.inbox, do)
		return
	}
	do()
}

// tell carries a message to p: mostly at once, sometimes late, sometimes never.
func (w *world) tell(p *process, do func()) {
	delay := time.Duration(w.r.Int64N(int64(5 * time.Millisecond)))
	switch w.r.IntN(20) {
	case 0:
		return
	case 1:
		delay = time.Duration(w.r.Int64N(int64(w.terms.Lease)))
	default:
	}
	w.after(delay, func() { p.run(do) })
}

// ask carries a message between two voters.
func (w *world) ask(from, to *process, do func()) {
	cut := from
	if !from.cut {
		cut = to
	}
	switch {
	case from == to || !cut.cut:
		w.tell(to, do)
	case w.r.IntN(2) == 0: // it arrives when they are together again
		cut.held = append(cut.held, func() { to.run(do) })
	default:
	}
}

// wait calls do when p's own clock has gone on by d.
func (p *process) wait(d time.Duration, do func()) {
	p.w.after(time.Duration(float64(max(d, 0))/p.rate)+1, func() { p.run(do) })
}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 4))
	w := &world{
		t: t, r: r, members: map[kmutex.Node]*process{}, lost: map[kmutex.Node]*process{},
		terms: Terms{Lease: 3 * time.Second, Bound: time.Duration(r.IntN(2)) * 150 * time.Millisecond},
	}
	for i := range 3 + 2*r.IntN(2) {
		p := &process{w: w, id: fmt.Sprint(i), rate: 1 + []float64{-.09, .09, .18*r.Float64() - .09}[r.IntN(3)], offset: time.Duration(r.Int64N(1e12))}
		w.procs = append(w.procs, p)
		w.join(p)
	}
	return w
}

// join commits a new incarnation of p.
func (w *world) join(p *process) {
	w.nodes++
	w.members[w.nodes] = p
	p.holder, p.lapsed = NewHolder(w.terms, w.nodes, p.clock()), false
	p.renew(p.holder)
}

// renew sends a renewal to a process that leads, or that thinks so.
func (p *process) renew(h *Holder) {
	if p.holder != h {
		return
	}
	now := p.clock()
	if h.Over(now) {
		p.lapsed = true
		p.w.lapsed++
		p.wait(100*time.Millisecond, func() { p.comeBack(h) })
		return
	}
	if now >= h.Due() {
		renewal := h.Send(now)
		leader := p.w.someLeader()
		if leader != nil {
			p.w.tell(leader, func() { leader.receive(renewal) })
		}
		p.wait(p.w.terms.Lease/30, func() {
			if renewal.Tag == h.tag {
				h.DueBy(p.clock())
			}
		})
	}
	p.wait(p.w.terms.Lease/60, func() { p.renew(h) })
}

func (p *process) comeBack(h *Holder) {
	if _, in := p.w.members[h.node]; in {
		delete(p.w.members, h.node)
		p.w.lost[h.node] = p
	}
	p.holder = nil
	if !p.w.majority(p.w.maxTerm()) {
		p.wait(time.Second, func() { p.comeBack(h) })
		return
	}
	p.w.join(p)
}

func (w *world) someLeader() *process {
	var leaders []*process
	for _, p := range w.procs {
		if p.grantor != nil {
			leaders = append(leaders, p)
		}
	}
	if len(leaders) == 0 {
		return nil
	}
	return leaders[w.r.IntN(len(leaders))]
}

func (p *process) receive(r Renewal) {
	if p.grantor == nil {
		return
	}
	p.follow()
	if p.grantor.Receive(r, p.clock()) && !p.asking {
		p.round()
	}
}

// follow has the leader's grantor see what has been committed: at once if it
// still leads, else nothing new reaches it.
func (p *process) follow() {
	if !p.w.majority(p.term) || p.grantor.term != p.term {
		return
	}
	var members, lost []kmutex.Node
	for n := range p.w.members {
		members = append(members, n)
	}
	for n := range p.w.lost {
		lost = append(lost, n)
	}
	p.grantor.Follow(members, lost)
}

func (p *process) round() {
	if p.grantor == nil || !p.grantor.Waiting() {
		return
	}
	g := p.grantor
	p.asking = true
	number, yes := g.Ask(), 0
	for _, v := range p.w.procs {
		p.w.ask(p, v, func() {
			term := v.term
			p.w.ask(v, p, func() {
				switch {
				case g != p.grantor:
				case term > g.term:
					p.w.later++
					p.grantor = nil // as raft does
				case term == g.term:
					if yes++; yes == len(p.w.procs)/2+1 {
						p.grant(g.Confirm(number))
					}
				}
			})
		})
	}
	p.wait(200*time.Millisecond, func() {
		p.asking = false
		p.round()
	})
}

func (p *process) grant(granted []Renewal) {
	for _, r := range granted {
		p.w.granted++
		for _, q := range p.w.procs {
			if q.holder != nil && q.holder.node == r.Node {
				p.w.tell(q, func() {
					if q.holder != nil {
						q.holder.Granted(r, q.clock())
					}
				})
			}
		}
	}
}

// elect has p ask for votes.
func (w *world) elect(p *process) {
	if p.paused {
		return
	}
	term := max(w.maxTerm(), p.term) + 1
	p.term, p.votes, p.grantor = term, 1, nil
	for _, v := range w.procs {
		if v == p {
			continue
		}
		w.ask(p, v, func() {
			if v.term >= term {
				return
			}
			v.term = term
			if v.grantor != nil {
				v.grantor = nil // it steps down, now that it knows
			}
			w.ask(v, p, func() { p.vote(term) })
		})
	}
}

func (p *process) vote(term uint64) {
	if p.term != term || p.grantor != nil {
		return
	}
	if p.votes++; p.votes > len(p.w.procs)/2 {
		p.grantor, p.asking = NewGrantor(p.w.terms, term, p.clock()), false
		p.follow()
	}
}

func (w *world) maxTerm() uint64 {
	var term uint64
	for _, p := range w.procs {
		term = max(term, p.term)
	}
	return term
}

// majority reports that a leader of the term could commit.
func (w *world) majority(term uint64) bool {
	n := 0
	for _, p := range w.procs {
		if p.term <= term {
			n++
		}
	}
	return n > len(w.procs)/2
}

// trouble does something to the world.
func (w *world) trouble() {
	p := w.procs[w.r.IntN(len(w.procs))]
	switch w.r.IntN(8) {
	case 0:
		w.elect(p)
	case 1:
		w.pause(p, time.Duration(w.r.Int64N(int64(2*w.terms.Lease))))
	case 2, 3, 4:
		w.usurp()
	default:
		w.suspend()
	}
	w.after(time.Duration(w.r.Int64N(int64(w.terms.Lease))), w.trouble)
}

// usurp stops a leader, or cuts it off, and has another one lead and suspend
// somebody before the first one knows.
func (w *world) usurp() {
	leader := w.someLeader()
	if leader == nil {
		return
	}
	d := time.Duration(w.r.Int64N(int64(2 * w.terms.Lease)))
	if w.r.IntN(2) == 0 {
		// In the middle of a round, as often as not.
		if q := w.procs[w.r.IntN(len(w.procs))]; q.holder != nil && !leader.paused {
			leader.receive(q.holder.Send(q.clock()))
		}
		w.after(time.Duration(w.r.Int64N(int64(10*time.Millisecond))), func() { w.pause(leader, d) })
	} else if !leader.cut {
		leader.cut = true
		w.after(d, func() {
			held := leader.held
			leader.cut, leader.held = false, nil
			for _, do := range held {
				do()
			}
		})
	}
	other := w.procs[w.r.IntN(len(w.procs))]
	if other != leader {
		w.elect(other)
	}
	w.after(time.Duration(w.r.Int64N(int64(w.terms.Lease/2))), w.suspend)
}

func (w *world) pause(p *process, d time.Duration) {
	if p.paused {
		return
	}
	p.paused = true
	w.after(d, func() {
		p.paused = false
		inbox := p.inbox
		p.inbox = nil
		for _, do := range inbox { // in any order, as many goroutines wake
			w.after(time.Duration(w.r.Int64N(int64(200*time.Millisecond))), func() { p.run(do) })
		}
	})
}

// suspend has a leader that can commit suspend somebody.
func (w *world) suspend() {
	for _, p := range w.procs {
		if p.grantor == nil || p.paused || !w.majority(p.term) {
			continue
		}
		for _, node := range slices.Sorted(maps.Keys(w.members)) {
			q := w.members[node]
			if w.r.IntN(len(w.procs)) == 0 {
				delete(w.members, node)
				w.lost[node] = q
			}
		}
		p.follow()
	}
}

// check is the promise.
func (w *world) check() error {
	for _, p := range w.procs {
		if h := p.holder; h != nil {
			if p.lapsed && h.valid(p.clock()) {
				return fmt.Errorf("node %d has a lease again after it had lapsed", h.node)
			}
			_, held := h.Until()
			if held && !h.valid(p.clock()) {
				p.lapsed = true
			}
		}
	}
	for _, leader := range w.procs {
		if leader.grantor == nil {
			continue
		}
		for _, node := range slices.Sorted(maps.Keys(w.lost)) {
			p := w.lost[node]
			if !leader.grantor.Expired(node, leader.clock()) {
				continue
			}
			w.expired++
			if h := p.holder; h != nil && h.node == node && h.valid(p.clock()) {
				return fmt.Errorf("node %d believes in its lease until %v of its clock, which shows %v; leader %s of term %d calls it expired",
					node, h.until, p.clock(), leader.id, leader.grantor.term)
			}
			if w.majority(leader.term) && w.r.IntN(8) == 0 {
				delete(w.lost, node) // it commits that it is expired
			}
		}
	}
	return nil
}

func (w *world) play(until time.Duration) error {
	w.elect(w.procs[0])
	w.after(time.Second, w.trouble)
	for len(w.events) > 0 && w.now < until {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
		if err := w.check(); err != nil {
			return fmt.Errorf("at %v: %w", w.now, err)
		}
	}
	return nil
}

func TestWorlds(t *testing.T) {
	first, n := uint64(1), uint64(*seeds)
	if testing.Short() {
		n /= 2
	}
	if *seed != 0 {
		first, n = *seed, 1
	}
	granted, expired, lapsed, later := 0, 0, 0, 0
	for s := first; s < first+n; s++ {
		w := newWorld(t, s)
		if err := w.play(40 * time.Second); err != nil {
			t.Fatalf("%v\nagain: go test -run TestWorlds ./internal/membership/lease -lease.seed=%d", err, s)
		}
		granted, expired, lapsed, later = granted+w.granted, expired+w.expired, lapsed+w.lapsed, later+w.later
	}
	t.Logf("%d worlds: %d renewals granted, %d leases lapsed, %d answers of a later term; %d times somebody was expired", n, granted, lapsed, later, expired)
	if *seed == 0 && (granted == 0 || expired == 0 || lapsed == 0 || later == 0) {
		t.Error("the worlds do not show what they are to show")
	}
}
