package pool

import (
	"errors"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// Why an event is refused, beside the errors of package kmutex.
var (
	// errVoid: this gateway has no part in the pool now.
	errVoid = errors.New("pool: no part in it")
	// errLetter: no gateway that works sends this letter.
	errLetter = errors.New("pool: a letter that makes no sense")
)

// State of a pool at one gateway. The package's doc tells how one follows the
// other.
type State uint8

// The states.
const (
	Void State = iota
	Frozen
	Reporting
	Refused
	Installed
)

// String returns the state's name as logs show it.
func (s State) String() string {
	return [...]string{"void", "frozen", "reporting", "refused", "installed"}[s]
}

// Config of a Pool.
type Config struct {
	// Self is the incarnation whose part this is.
	Self kmutex.Node
	// Binding of the machine, new.
	Binding kmutex.Binding
	// Memory of what outlives the incarnation; nil: nothing does.
	Memory *Memory
	// Interval returns the ask interval: the line is no finer than that.
	Interval func() time.Duration
	// Audit has home count the tokens now and then.
	Audit bool
	// Placed returns when a waiting ticket took its place, by the wall clock in
	// nanoseconds; false: it has been cancelled.
	Placed func(kmutex.Request) (stamp int64, waits bool)
	// Wall is the time by the wall clock in nanoseconds. It is asked for tickets that
	// are taken over and may keep their slots until then.
	Wall func() int64
}

// Memory is what a gateway remembers of a pool from one incarnation to the next.
// The zero value is empty.
type Memory struct {
	// unknown are lost gateways whose tickets nobody knew, and since when.
	unknown  map[kmutex.Node]time.Duration
	replicas *replication.ReplicaSet
}

// Replicas are those of other gateways' tickets.
func (m *Memory) Replicas() *replication.ReplicaSet {
	if m.replicas == nil {
		m.replicas = replication.NewReplicaSet()
	}
	return m.replicas
}

// maxEarly bounds the messages that wait for a view.
const maxEarly = 4096

// Pool is one incarnation's part of one pool. It is not safe for concurrent use.
type Pool struct {
	cfg      Config
	machine  *kmutex.Machine
	state    State
	disk     Disk
	view     View
	early    []kmutex.Envelope // to members of a view to come
	overflow bool              // of early: a message is missing in the line
	fx       Effects

	installed uint64          // the epoch that began here last
	withheld  kmutex.TokenSet // in that epoch
	whole     kmutex.TokenSet // the tokens that must be somewhere in that epoch
	// reclaimed tokens of that epoch were in messages that never left this
	// gateway.
	reclaimed kmutex.TokenSet
	// unplanned are the epochs since then of which this gateway was home, and
	// which it has not planned and never will.
	unplanned []uint64

	tickets *Tickets
	report  *replication.EpochReport // of the view's epoch
	home    *home                    // nil: another gateway is, or the epoch just begins
	// ahead are reports of epochs that this gateway has not heard of yet.
	ahead  map[kmutex.Node]*replication.EpochReport
	again  []retry
	repair repair
	audit  audit
	used   kmutex.TokenSet // granted here since home counted last
	// spreadAt is the earliest time of the next epoch that only spreads tokens.
	spreadAt time.Duration
	expiry   time.Duration // when the tickets that nobody knows of have run out; 0: never
	wakeAt   time.Duration // what the driver was told last
}

// New returns a pool that does nothing before its first view.
func New(cfg Config) *Pool {
	if cfg.Memory == nil {
		cfg.Memory = new(Memory)
	}
	return &Pool{cfg: cfg, machine: kmutex.New(cfg.Self, cfg.Binding)}
}

// State returns how far the pool is.
func (p *Pool) State() State { return p.state }

// Machine returns the machine, to be looked at.
func (p *Pool) Machine() *kmutex.Machine { return p.machine }

// View returns what [Pool.Follow] was given last.
func (p *Pool) View() *View { return &p.view }

// Epoch returns the epoch that began here last; 0: none.
func (p *Pool) Epoch() uint64 { return p.installed }

// Withheld returns the tokens that a lost gateway may still use, in that epoch.
func (p *Pool) Withheld() kmutex.TokenSet { return p.withheld }

// Early calls visit for every message that waits for a view.
func (p *Pool) Early(visit func(kmutex.Envelope)) {
	for _, m := range p.early {
		visit(m)
	}
}

// Step lets the machine take in an event other than freeze and install. After an
// error nothing has changed.
func (p *Pool) Step(e kmutex.Event) (*Effects, error) {
	p.fx.reset()
	if p.state == Void {
		return &p.fx, errVoid
	}
	err := p.step(e)
	return &p.fx, err
}

// step adds the effects of an event.
func (p *Pool) step(e kmutex.Event) error {
	fx, err := p.machine.Step(e)
	for i := range fx.Messages {
		p.send(&fx.Messages[i])
	}
	for _, g := range fx.Grants {
		p.fx.Grants = append(p.fx.Grants, g)
		if g.Token >= 0 {
			p.used.Add(g.Token)
		}
	}
	p.fx.AskTimer = p.fx.AskTimer || fx.AskTimer
	p.fx.Trace = append(p.fx.Trace, fx.Trace...)
	return err
}

// send adds a message. One to a member that the view here does not know yet is
// kept until the view that does: another gateway, which knows it, has passed its
// request on.
func (p *Pool) send(m *kmutex.Envelope) {
	switch {
	case m.To <= p.view.Newest:
		p.fx.Messages = append(p.fx.Messages, *m)
	case len(p.early) < maxEarly:
		p.early = append(p.early, *m)
	default: // the line misses it
		p.overflow, p.fx.WakeAt = true, 1
	}
}

// UseFree notes that the free tokens here are of use: home does not spread them.
func (p *Pool) UseFree() {
	if p.state == Installed {
		_, free := p.machine.Holdings()
		p.used.AddAll(free)
	}
}

// MessageLost takes in that the links could not take a message to a gateway that
// is a member: the line misses it, and a new epoch is asked for, unless that of
// the message is over anyway.
func (p *Pool) MessageLost(now time.Duration, epoch uint64) *Effects {
	p.fx.reset()
	if p.state == Installed && epoch == p.installed {
		p.mend(now)
	}
	return p.done(now)
}

// Unsent takes back the tokens of a message that its receiver, which is lost,
// cannot have received: they have not been away. It comes before the view that
// takes that gateway out. Without it, most tokens would be withheld when a
// coordinator is lost, because those released after its end were sent to it.
func (p *Pool) Unsent(m *kmutex.Message) {
	if p.state == Void || m.Epoch != p.installed {
		return
	}
	switch m.Kind {
	case kmutex.KindToken:
		p.reclaimed.Add(m.Token)
	case kmutex.KindBaton, kmutex.KindTokens:
		p.reclaimed.AddAll(m.Free)
	default: // carries no token
	}
}

// Wake takes in that the time of [Effects].WakeAt has come. To call it at other
// times is harmless.
func (p *Pool) Wake(now time.Duration) *Effects {
	p.fx.reset()
	if p.state != Void {
		p.wakeAt = 0
		p.retry(now)
		if p.overflow || p.expiry > 0 && now >= p.expiry {
			p.overflow, p.expiry = false, 0
			p.mend(now)
		}
		p.count(now)
		p.expire(now)
	}
	return p.done(now)
}

// End ends the incarnation's part. Its tickets are from now on among the replicas of
// what lost gateways left; nothing else is left of it.
func (p *Pool) End() error {
	err := p.voidTickets()
	*p = Pool{cfg: p.cfg}
	return err
}

// done completes the effects of an event that may have changed when to wake up.
func (p *Pool) done(now time.Duration) *Effects {
	p.pushTickets()
	p.repair.fire(now, p)
	next := p.repair.next()
	for _, at := range []time.Duration{p.nextRetry(), p.expiry, p.nextCount(), p.nextExpiry()} {
		if at > 0 && (next == 0 || at < next) {
			next = at
		}
	}
	if next != 0 && next != p.wakeAt {
		p.wakeAt, p.fx.WakeAt = next, next
	}
	return &p.fx
}
