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
	errVoid = errors.New("this gateway has no part in it")
	// errLetter: no correct gateway sends this letter.
	errLetter = errors.New("invalid letter")
	// ErrNotYet: a letter comes before the view, or the tickets, that it is about.
	ErrNotYet = errors.New("not known here yet")
)

// State of a pool at one gateway. The package's comment says which follows which.
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
	// Interval returns the ask interval: the line is no more precise than that.
	Interval func() time.Duration
	// Audit lets home count the tokens now and then.
	Audit bool
	// Placed returns when a waiting ticket took its place, by the wall clock in
	// nanoseconds; false: it has been cancelled.
	Placed func(kmutex.Request) (stamp int64, waits bool)
	// Wall returns the time by the wall clock in nanoseconds. It is called when tickets are
	// taken over whose holds end by the wall clock.
	Wall func() int64
}

// Memory is what a gateway remembers of a pool from one incarnation to the next.
// The zero value is empty.
type Memory struct {
	unknown  replication.Unknown
	replicas *replication.ReplicaSet
	unread   []kmutex.Node // incarnations that ended before the disk was read, and have dropped nothing
}

// Replicas are those of other gateways' tickets.
func (m *Memory) Replicas() *replication.ReplicaSet {
	if m.replicas == nil {
		m.replicas = replication.NewReplicaSet()
	}
	return m.replicas
}

// retryInterval is the machine's retry interval: a token that nobody in line could use is offered again after it,
// and batches that have stood so long tell who is before whom.
const retryInterval = time.Second

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
	overflow bool              // of early: the line has lost a message
	fx       Effects

	installed uint64          // the epoch that began here last
	withheld  kmutex.TokenSet // in that epoch
	whole     kmutex.TokenSet // the tokens that must be somewhere in that epoch
	// reclaimed tokens of that epoch were in messages that have never left this gateway.
	reclaimed kmutex.TokenSet
	// unplanned are the epochs since then of which this gateway was home, and
	// which it has not planned and never will.
	unplanned []uint64

	tickets *Tickets
	// handingOver: the tickets' records say how much time is left, see HandOver.
	handingOver bool
	report      *replication.EpochReport // of the view's epoch
	home        *home                    // nil: another gateway is, or the epoch just begins
	again       []retry
	own         []Letter // to this gateway itself
	repair      repair
	audit       audit
	used        kmutex.TokenSet // granted here since home counted last
	// spreadAt is the earliest time of the next epoch that only spreads tokens.
	spreadAt time.Duration
	expiry   time.Duration // when the tickets that no gateway knows have run out; 0: never
	// retries: the machine has asked for a retry interval; retryAt is when one ends, 0: none is running.
	retries bool
	retryAt time.Duration
	wakeAt  time.Duration // as the driver has it
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

// Machine returns the machine, for reading.
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

// UseFree notes that this gateway uses its free tokens, so that home does not spread them.
func (p *Pool) UseFree() {
	if p.state == Installed {
		_, free := p.machine.Holdings()
		p.used.AddAll(free)
	}
}

// Unsent takes back the tokens of a message that its receiver, which is lost,
// cannot have received: they have never left. It comes before the view that
// removes that gateway. Without it, most tokens would be withheld when a coordinator
// is lost, because those released after its end were sent to it.
func (p *Pool) Unsent(m *kmutex.Message) {
	if p.state == Void || m.Epoch != p.installed {
		return
	}
	switch m.Kind {
	case kmutex.KindToken:
		p.reclaimed.Add(m.Token)
	case kmutex.KindBaton, kmutex.KindTokens, kmutex.KindOffer:
		p.reclaimed.AddAll(m.Free)
	default: // carries no token
	}
}

// step adds the effects of an event.
func (p *Pool) step(e *kmutex.Event) error {
	fx, err := p.machine.Step(e)
	p.send(fx.Messages)
	for _, g := range fx.Grants {
		p.fx.Grants = append(p.fx.Grants, g)
		if g.Token >= 0 {
			p.used.Add(g.Token)
		}
	}
	p.fx.AskTimer = p.fx.AskTimer || fx.AskTimer
	p.retries = p.retries || fx.RetryTimer
	p.fx.Trace = append(p.fx.Trace, fx.Trace...)
	return err
}

// send adds messages. One to a member that this gateway's view does not have yet is kept
// until a view that does: a gateway with a newer view has passed that member's request on.
func (p *Pool) send(messages []kmutex.Envelope) {
	for i := range messages {
		one := messages[i : i+1] // a copy of it would make the stack of each waiting request larger
		switch {
		case one[0].To <= p.view.Newest:
			p.fx.Messages = append(p.fx.Messages, one...)
		case len(p.early) < maxEarly:
			p.early = append(p.early, one...)
		default: // the line has lost it
			p.overflow, p.fx.WakeAt = true, 1
		}
	}
}

// sendEarly sends what was kept for members that the view has now. If they have
// left meanwhile, the links refuse it.
func (p *Pool) sendEarly() {
	early := p.early
	p.early = nil
	p.send(early)
}
