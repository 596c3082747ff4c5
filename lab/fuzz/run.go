package fuzz

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"time"

	"github.com/kgate/kgate/lab/cluster"
	"github.com/kgate/kgate/lab/network"
)

// Errors of a run, beside package cluster's.
var (
	// errInvariant means that the machines contradict each other.
	errInvariant = errors.New("an invariant is violated")
	// errStarved means that somebody was not served in time.
	errStarved = errors.New("not served in time")
	// errUnsettled means that the cluster did not come to order in time.
	errUnsettled = errors.New("not in order in time")
	// errPanic means that a machine stopped.
	errPanic = errors.New("panic")
)

// Result is what a run was like.
type Result struct {
	Served int
	Events uint64
	// Most requests at the upstream, and most that paused processes had open
	// beyond their leases.
	Most, Apart int
	// Epochs is how many the pool went through.
	Epochs uint64
}

// healed is how long after the faults everything must be in order: leases that ran
// have to expire, and those who lost theirs to come back.
const healed = lease*2 + 3*time.Second

// longestOut is how long a gateway stays out at most whose links or reports fail again and
// again, docs/guarantees.md, by a clock that is a tenth slow.
const longestOut = time.Minute * 10 / 9

// served is how long the last requests may take after that, beyond what they are
// at the upstream if they go there one by one.
const served = 30 * time.Second

// slack is added to what the upstream may see; for tests.
var slack = 0

// Run plays the scenario and returns the fault that it finds as an error. The trace may be nil.
func Run(s *Scenario, trace io.Writer) (res Result, err error) {
	p := &play{Scenario: s, slow: make(map[[2]int]time.Duration), three: make(map[int]int)}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, r, debug.Stack())
		}
	}()
	delay := network.Jitter{Base: s.Base, Extra: s.Extra}
	p.Cluster = cluster.New(cluster.Config{
		Seed: s.Seed, Hosts: s.Hosts, Members: s.Members, K: s.K, Upstreams: s.Upstreams, Early: s.Early,
		Network: delay, Ask: 4 * time.Duration(s.Members) * delay.Mean(),
		Lease: lease, Memory: s.Memory, Write: s.Write,
		Tickets: s.Tickets, Slack: slack, Trace: trace, Due: p.due,
	})
	p.Watch(func(to int, kind string) { p.triggered(to, kind, false) }, func(to int, kind string) { p.triggered(to, kind, true) })
	for i := range s.Ops {
		p.At(s.Ops[i].At, uint64(i))
	}
	err = p.play()
	res = Result{Served: p.Served(), Events: p.Events(), Epochs: p.Pool().Epoch}
	res.Most, res.Apart = p.Most()
	return res, err
}

// play is a scenario that is being played.
type play struct {
	*Scenario
	*cluster.Cluster
	asked   []*cluster.Request
	holders []*cluster.Holder
	armed   []Op
	checked time.Duration
	// three is how many records a host had when three voted first: an older copy may be the only
	// vote.
	three map[int]int
	slow  map[[2]int]time.Duration
}

const checkEvery = 20 * time.Millisecond

func (p *play) play() error {
	if err := p.until(p.End, nil); err != nil || p.Mode == Safety {
		return err
	}
	p.armed = nil
	p.hurry()
	if err := p.moves(); err != nil {
		return err
	}
	p.heal()
	if err := p.settle(); err != nil {
		return err
	}
	for host := range p.Hosts {
		if p.Alive(host) {
			p.asked = append(p.asked, p.Request(host, time.Millisecond, 0))
		}
	}
	enough := func() bool { return p.starving() == nil }
	if err := p.until(p.Now()+served+p.work(), enough); err != nil {
		return err
	}
	if p.starving() != nil && p.Spent() {
		if err := p.until(p.Now()+p.UnknownFor(), enough); err != nil {
			return err
		}
	}
	return p.starving()
}

// settle waits until everything is in order. A gateway that has to stay out, since its
// links or its reports failed again and again, has as long from the end of that as all
// have from the healing; nobody else waits for it.
func (p *play) settle() error {
	within := func(d time.Duration, excused func(host int) bool) error {
		for more := true; more; {
			more = false // a process that starts now has as long as all had
			err := p.until(p.Now()+d, func() bool { more = p.startAll(); return more || p.Settled(excused) == nil })
			if err != nil {
				return err
			}
		}
		if err := p.Settled(excused); err != nil {
			return fmt.Errorf("%w: %w", errUnsettled, err)
		}
		return nil
	}
	if err := within(healed, p.Waits); err != nil {
		return err
	}
	in := func() bool {
		for host := range p.Hosts {
			if p.Waits(host) {
				return false
			}
		}
		return true
	}
	if err := p.until(p.Now()+longestOut, in); err != nil {
		return err
	}
	return within(healed, nil)
}

// until runs to an instant, or until enough, and checks on the way.
func (p *play) until(end time.Duration, enough func() bool) error {
	for p.Step(end) {
		if err := p.Err(); err != nil {
			return err
		}
		if p.Now()-p.checked < checkEvery {
			continue
		}
		p.checked = p.Now()
		p.note()
		if w, whole := p.Whole(); whole {
			if err := errors.Join(w.Check(), p.Held()); err != nil {
				return fmt.Errorf("%w: %w", errInvariant, err)
			}
		}
		if enough != nil && enough() {
			return nil
		}
	}
	return p.Err()
}

// note notes how much each host had on disk when three voted first.
func (p *play) note() {
	for i := range p.Hosts {
		if h := p.Host(i); p.three[i] == 0 && h.Core != nil && len(h.Core.Voters()) >= 3 {
			p.three[i] = h.Records()
		}
	}
}

// hurry ends the delays with which leases do not hold, docs/guarantees.md: how long a line
// takes in which each token takes seconds to pass on is nothing to judge. Upstreams are well again: who
// reaches none lets nobody in.
func (p *play) hurry() {
	for host := range p.Hosts {
		for u := range p.Upstreams {
			p.Sick(host, u, false)
		}
	}
	slow := maps.Clone(p.slow)
	for way, by := range slow {
		if back := slow[[2]int{way[1], way[0]}]; by+back+2*(p.Base+p.Extra) > quick {
			p.Slow(way[0], way[1], 0)
			delete(p.slow, way)
		}
	}
}

// heal ends all faults. Clocks stay wrong.
func (p *play) heal() {
	p.armed = nil
	p.hurry()
	for a := range p.Hosts {
		p.Resume(a)
		p.Host(a).CrashAt(0)
		p.Host(a).Unhang()
		for b := range p.Hosts {
			if p.IsCut(a, b) {
				p.Heal(a, b)
			}
			p.Unbar(a, b)
			p.Widen(a, b)
			p.Unlose(a, b)
			p.Slow(a, b, 0)
		}
	}
	p.startAll()
}

// startAll starts what has ended: also a process that was told to leave, and had
// to go without the others' agreement. It reports whether there was any.
func (p *play) startAll() bool {
	started := false
	for host := range p.Hosts {
		started = started || !p.Runs(host)
		p.Start(host)
	}
	return started
}

// work is how long those who wait will be at the upstream, in sum, with the hand-overs
// between them.
func (p *play) work() time.Duration {
	var sum time.Duration
	for _, r := range p.asked {
		if r.Outcome() == "" {
			sum += r.Hold + 4*(p.Base+p.Extra)
		}
	}
	for _, h := range p.holders {
		if !h.Over() {
			sum += h.Lasts()
		}
	}
	return sum
}

// starving returns an error that names the requests that have not been served.
func (p *play) starving() error {
	waiting := 0
	for _, r := range p.asked {
		if r.Outcome() == "" {
			waiting++
		}
	}
	if waiting > 0 {
		return fmt.Errorf("%w: %d of %d requests", errStarved, waiting, len(p.asked))
	}
	return nil
}

// due lets an operation happen, or wait for its message. When the faults have ended nothing happens, nor what
// follows from an operation before: what is broken stays so until all is healed.
func (p *play) due(i uint64) {
	if p.Now() > p.End {
		return
	}
	if past := int(i) - len(p.Ops); past >= 0 {
		p.follows(past/p.Hosts, past%p.Hosts)
		return
	}
	switch o := p.Ops[i]; {
	case o.On != "":
		p.armed = append(p.armed, o)
	default:
		p.do(o)
	}
}

// triggered lets happen what has waited for a message like this.
func (p *play) triggered(to int, kind string, after bool) {
	for i, o := range p.armed {
		if o.On == kind && o.After == after && (!o.Here || o.Host == to) {
			p.armed = append(p.armed[:i:i], p.armed[i+1:]...)
			o.Host = to
			p.do(o)
			p.triggered(to, kind, after) // several may have waited for it
			return
		}
	}
}

func (p *play) do(o Op) {
	switch o.Kind {
	case OpRequest:
		p.asked = append(p.asked, p.Request(o.Host, o.Hold, o.Patience))
	case OpTicket:
		p.holders = append(p.holders, p.Ticket(o.Host, o.Patience, o.Hold))
	case OpKill, OpCrash, OpRestore, OpLeave:
		p.end(o)
	case OpStart:
		if o.K == 0 {
			o.Host = p.first(o.Host, func(host int) bool { return !p.Runs(host) })
		}
		p.Start(o.Host)
	case OpPause:
		p.Pause(o.Host)
	case OpResume:
		p.Resume(p.first(o.Host, p.Paused))
	case OpCut, OpHeal, OpBar, OpUnbar, OpNarrow, OpWiden, OpLose, OpUnlose:
		p.links(o)
	case OpSlow:
		p.Slow(o.Host, int(o.To), o.Hold)
		p.slow[[2]int{o.Host, int(o.To)}] = o.Hold
	case OpSetK:
		p.SetK(o.K)
	case OpRate:
		p.SetRate(o.Host, o.Rate)
	case OpStep:
		p.StepWall(o.Host, o.Hold)
	case OpElect:
		if l := p.Leads(); l >= 0 && !p.Paused(l) {
			p.Pause(l)
			p.later(o.Hold, resumes, l)
		}
	case OpDepose:
		p.depose(o)
	case OpWrite:
		p.Host(o.Host).CrashAt(p.Host(o.Host).Writes() + o.K)
	case OpHang:
		p.Host(o.Host).Hang()
	case OpUnhang:
		p.Host(o.Host).Unhang()
	case OpBreak:
		p.Break(o.Host, int(o.To))
	case OpSuspect:
		p.Suspect(o.Host)
	case OpRecover:
		p.Recover()
	case OpSick, OpWell:
		p.Sick(o.Host, o.K, o.Kind == OpSick)
	}
}

// first returns the first host, in order from host from, to which applies applies. It serves operations
// that hit the receiver of a message.
func (p *play) first(from int, applies func(host int) bool) int {
	for i := range p.Hosts {
		if host := (from + i) % p.Hosts; applies(host) {
			return host
		}
	}
	return from
}

// links does something to the links from one set of hosts to another.
func (p *play) links(o Op) {
	for a := range p.Hosts {
		for b := range p.Hosts {
			if a == b || o.From>>a&1 == 0 || o.To>>b&1 == 0 {
				continue
			}
			do := map[Kind]func(a, b int){OpCut: p.Cut, OpHeal: p.Heal, OpBar: p.Bar, OpUnbar: p.Unbar, OpNarrow: p.Narrow, OpWiden: p.Widen, OpLose: p.Lose, OpUnlose: p.Unlose}[o.Kind]
			do(a, b)
		}
	}
}
