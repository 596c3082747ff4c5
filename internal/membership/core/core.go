package core

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
)

// Config says who a process is and how it takes part.
type Config struct {
	// Stored is what it has kept, or [NewStored].
	Stored *Stored
	// Durable: writes go to a disk, and count when the driver says so. Else they count at
	// once.
	Durable bool
	// Name of the gateway, Boot of this start, and Addr where others reach it.
	Name, Boot, Addr string
	// Expect is how many gateways start a new cluster together, 1 for alone. Joining: it
	// starts none if Expect is 1.
	Expect  int
	Joining bool
	// Witness gateways vote and serve nothing.
	Witness bool
	// Lease is what a new cluster agrees on.
	Lease time.Duration
	// SwapAfter is how long a voter is away until another takes its vote.
	SwapAfter time.Duration
	// Wall is the time of day at time 0, in milliseconds of Unix time.
	Wall int64
	// Tokens returns the admin tokens of this gateway: who asks for a change that people make
	// proves that it has the first one, and a leader that has some takes a proof with any of them. Nil
	// or none: nothing is proved.
	Tokens func() []string
	// Seed of all that is random.
	Seed uint64
}

// Core is one process's part in the agreement on views. It is used by one goroutine at a
// time.
type Core struct {
	cfg    Config
	id     ID
	rand   *rand.Rand
	now    time.Duration
	out    Effects
	stored *Stored

	// raft, and what it has led to.
	node    *raft.RawNode
	conf    *pb.ConfState
	servers []server // in order of ID: those of conf, and where they are
	machine views.Machine
	view    *views.View // as it was published last
	applied Position
	snapped uint64 // index of the newest snapshot
	writes  []pendingWrite
	written uint64 // number of the newest write
	pace    pace   // of the disk
	state   raft.StateType
	lead    ID // who leads, as raft says; 0: nobody

	peers    peers
	roll     rollCall
	election election
	self     incarnation
	asked    []asking    // commands that are not agreed on yet
	tags     uint64      // of the leader's own commands
	l        *leadership // nil: this process does not lead
	before   *leadership // the last time that it did

	leaving  bool
	left     bool
	departed time.Duration // until when it tries to leave
	diverged bool
	said     Hello         // to all, last
	orphan   time.Duration // since when there is no leader
	spare    time.Duration // when somebody needed this gateway last, which is leaving
	warnings warnings
}

// pendingWrite is one that is not on disk yet.
type pendingWrite struct {
	number    uint64
	at        time.Duration
	responses []*pb.Message
}

// New returns the part of a process that starts now. The first event should be [Woken].
func New(cfg Config, now time.Duration) (*Core, error) {
	cfg.Expect = max(cfg.Expect, 1)
	if cfg.SwapAfter <= 0 {
		cfg.SwapAfter = leader.SwapAfter
	}
	c := &Core{
		cfg: cfg, id: cfg.Stored.ID(), now: now, stored: cfg.Stored,
		rand: rand.New(rand.NewPCG(cfg.Seed, uint64(cfg.Stored.ID()))),
	}
	if cfg.Tokens == nil {
		c.cfg.Tokens = func() []string { return nil }
	}
	c.peers, c.orphan = newPeers(), now
	c.self = incarnation{first: cfg.Boot, boot: cfg.Boot}
	if cfg.Stored.note.Name != cfg.Name {
		return nil, fmt.Errorf("%w %q, this one is %q", ErrOtherName, cfg.Stored.note.Name, cfg.Name)
	}
	if err := c.restore(); err != nil {
		return nil, err
	}
	if !c.stored.blank() {
		c.roll = rollCall{calling: true, until: now + c.lease()}
	} else if cfg.Durable {
		c.note() // the id stays
	}
	c.election.at, c.warnings.lookAt = now+c.hesitation(), now
	return c, nil
}

// restore makes raft of what is kept.
func (c *Core) restore() error {
	c.conf, c.servers, c.applied, c.machine = &pb.ConfState{}, nil, Position{}, views.Machine{}
	if s := c.stored.snap; s != nil {
		if err := c.takeSnapshot(s); err != nil {
			return err
		}
	}
	node, err := raft.NewRawNode(&raft.Config{
		ID: uint64(c.id), Storage: storage{c.stored.log, c}, Applied: c.applied.Index,
		ElectionTick: ticksPerQuorum, HeartbeatTick: 1, CheckQuorum: true, PreVote: true,
		AsyncStorageWrites: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
		MaxSizePerMsg: maxAppend, MaxInflightMsgs: 64, MaxUncommittedEntriesSize: maxUncommitted,
		Logger: quiet{},
	})
	if err != nil {
		return fmt.Errorf("raft: %w", err)
	}
	c.node, c.state, c.lead = node, raft.StateFollower, 0
	return nil
}

// Bounds on what raft sends and keeps, in bytes.
const (
	maxAppend      = 64 << 10
	maxUncommitted = 4 << 20
)

// Step takes in an event, and returns what is to be done. Now is the process's clock, from
// any origin; it must go on while the machine sleeps, where there is such a clock.
func (c *Core) Step(now time.Duration, e Event) Effects {
	c.now = max(c.now, now)
	c.take(e)
	for again := true; again; {
		again = c.ready()
		again = c.follow() || again
		again = c.timers() || again
	}
	out := c.out
	c.out = Effects{}
	out.Wake = c.wake()
	return out
}

func (c *Core) take(e Event) {
	switch e := e.(type) {
	case Received:
		c.receive(e)
	case Connected:
		c.connected(e)
	case Disconnected:
		c.disconnected(e.From)
	case Dialed:
		c.dialed(e)
	case Gossip:
		c.peers.gossip, c.peers.next = e.Gateways, c.now
	case Missing:
		c.self.missing = e.Since
	case Written:
		c.wrote(e.Number)
	case Propose:
		c.propose(e.Tag, e.Command)
	case Forget:
		c.forget(e.Tag)
	case Rejoin:
		c.rejoin()
	case Leave:
		c.leave()
	case Woken:
	}
}

// receive takes in a message. Who has not said hello is not listened to.
func (c *Core) receive(e Received) {
	from, m := e.From, e.Message
	p := c.peers.conns[from]
	if p == nil || p.hello == nil && m.Hello == nil {
		return
	}
	if e.Trip > 0 {
		p.trip = e.Trip
	}
	switch {
	case m.Hello != nil:
		p.hello, p.heard = m.Hello, c.now
		c.heardHello(from, m.Hello)
	case m.raft != nil:
		c.receiveRaft(from, p.hello, m.raft)
	case p.hello.Cluster != c.stored.note.Cluster:
		if m.Join != nil && p.hello.Cluster == "" {
			c.receiveJoin(from, m.Join)
		}
	case m.Join != nil:
		c.receiveJoin(from, m.Join)
	case m.Renew != nil:
		c.receiveRenewal(from, m.Renew)
	case m.Grant != nil:
		c.granted(from, m.Grant)
	case m.Knocks != nil:
		c.knocked(from, m.Knocks)
	case m.Ask != nil:
		c.receiveCommand(from, m.Ask)
	case m.Refusal != nil:
		c.answered(m.Refusal.Tag, fmt.Errorf("%w: %s", views.ErrCommand, m.Refusal.Why))
	}
}

// timers does what is due. It reports whether there may be more to do.
func (c *Core) timers() bool {
	if c.left {
		return false
	}
	c.dial()
	c.callRoll()
	c.found()
	c.elect()
	c.renew()
	c.askToJoin()
	c.ask()
	c.depart()
	c.work()
	c.greet()
	c.complain()
	return c.node.HasReady()
}

// wake returns when the next timer is due.
func (c *Core) wake() time.Duration {
	at := c.now + lookAgain
	if c.left {
		return at
	}
	for _, next := range []time.Duration{
		c.peers.next, c.roll.next(c), c.election.next(c), c.self.next(c), c.nextAsk(), c.nextWork(), c.nextDepart(),
	} {
		if next > c.now {
			at = min(at, next)
		} else {
			at = c.now + time.Microsecond
		}
	}
	return at
}

// follow takes in a new view. It reports whether there is one.
func (c *Core) follow() bool {
	v := c.machine.View()
	if v == c.view {
		return false
	}
	c.view, c.out.View, c.peers.next = v, v, c.now
	c.self.follow(c)
	if c.l != nil {
		c.l.follow(c)
	}
	return true
}

// lease returns the agreed lease; as long as none is agreed, the configured one.
func (c *Core) lease() time.Duration {
	if agreed := c.machine.View().Lease; agreed > 0 {
		return agreed
	}
	return c.cfg.Lease
}

// terms are those of all leases.
func (c *Core) terms() lease.Terms { return c.machine.View().Terms() }

func (c *Core) send(to ID, m Message) {
	if c.peers.conns[to] != nil {
		c.out.Send = append(c.out.Send, Send{to, m})
	}
}

func (c *Core) log(level slog.Level, text string, attrs ...slog.Attr) {
	c.out.Log = append(c.out.Log, Line{level, text, attrs})
}

// fail ends this process.
func (c *Core) fail(err error) {
	if c.out.Failed == nil {
		c.out.Failed = err
	}
}

// random returns a time up to d.
func (c *Core) random(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(c.rand.Int64N(int64(d)))
}

// ID returns the process's id.
func (c *Core) ID() ID { return c.id }

// Leader returns the process that leads, as far as this one knows; 0: none.
func (c *Core) Leader() ID { return c.lead }

// Leads reports that this process leads, and has seen all that was agreed on before.
func (c *Core) Leads() bool { return c.l != nil && c.l.grantor != nil }

// Term returns the term that this process is in.
func (c *Core) Term() uint64 { return c.node.BasicStatus().GetTerm() }

// Voters returns the ids of those that vote.
func (c *Core) Voters() []ID {
	var ids []ID
	for _, v := range c.conf.GetVoters() {
		ids = append(ids, ID(v))
	}
	return ids
}

// Outgoing returns the ids of those that voted before the change of the voters that is under way: until it
// is over nothing is agreed on without a majority of them, too.
func (c *Core) Outgoing() []ID {
	var ids []ID
	for _, v := range c.conf.GetVotersOutgoing() {
		ids = append(ids, ID(v))
	}
	return ids
}

// View returns the newest view.
func (c *Core) View() *views.View { return c.machine.View() }

// Applied returns how far the log has been applied, and what of it are commands.
func (c *Core) Applied() (Position, views.Checkpoint) { return c.applied, c.machine.Newest() }

// serverText and serverID are how a view names a process.
func serverText(id ID) string { return strconv.FormatUint(uint64(id), 16) }

func serverID(text string) ID {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0 // nobody
	}
	return ID(id)
}

// member returns the member that is a process.
func (c *Core) member(id ID) (views.Member, bool) {
	text := serverText(id)
	for _, m := range c.machine.View().Members {
		if m.Server == text {
			return m, true
		}
	}
	return views.Member{}, false
}

// ErrOtherName says that what is kept is of a gateway of another name.
var ErrOtherName = errors.New("it belongs to the gateway")

// NameOf returns the gateway whose process it is; empty if nobody knows.
func (c *Core) NameOf(id ID) string { return c.nameOf(id) }

// Diverged reports that this gateway's state is not what the others have agreed on.
func (c *Core) Diverged() bool { return c.diverged }

var errDiverged = errors.New("this gateway's state is not what the others have agreed on: it has a defect, or its disk has lost what it had taken: stop it, move its data directory away and start it again")
