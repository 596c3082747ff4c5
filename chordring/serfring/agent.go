package serfring

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"
)

// Status of a member as far as this gateway knows.
type Status string

// What a member can be.
const (
	StatusAlive Status = "alive"
	// StatusFailed is a suspicion: no sign of life came in time.
	StatusFailed Status = "failed"
	// StatusLeft means that the member has left.
	StatusLeft Status = "left"
)

// Member is one gateway as gossip describes it.
type Member struct {
	Name string
	// PeerAddr is where its peer port is reached.
	PeerAddr string
	// Boot identifies the start of its process.
	Boot string
	// Version of its program.
	Version string
	// Expect is the number of gateways it expects to start a cluster with.
	Expect int
	Status Status
	// Addr is where it gossips.
	Addr string
}

// Agent takes part in the gossip. Its methods may be called by any number of
// goroutines.
type Agent struct {
	config  Config
	began   time.Time
	serf    *serf.Serf
	keyring *memberlist.Keyring // nil: gossip goes in the clear
	advise  *adviser
	changed chan struct{}
	news    chan struct{}
	stop    chan struct{}
	drained chan struct{}
	ending  sync.Mutex // Leave and Close run one after the other
	closed  bool       // guarded by ending
	halted  sync.Once
	wg      sync.WaitGroup
	pings   sync.WaitGroup // and spread

	mu      sync.Mutex
	members map[string]Member
	self    endpoint
	problem error
}

// endpoint is the address that a member gossips on.
type endpoint struct{ ip, port string }

func endpointOf(ip net.IP, port uint16) endpoint {
	return endpoint{ip.String(), strconv.Itoa(int(port))}
}

func (e endpoint) String() string { return net.JoinHostPort(e.ip, e.port) }

// Start begins to gossip and, in the background, to join. It does not wait
// for others. The agent runs until Close.
func Start(config Config) (*Agent, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	a := &Agent{
		config:  config,
		began:   time.Now(),
		advise:  newAdviser(config.Logger),
		changed: make(chan struct{}, 1),
		news:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		drained: make(chan struct{}),
		members: make(map[string]Member),
	}
	events := make(chan serf.Event, 256)
	conf, err := a.serfConfig(events)
	if err != nil {
		return nil, err
	}
	// Serf sends events while it holds its member lock: one goroutine does
	// nothing but take them, and never calls serf.
	ended := make(chan struct{})
	go func() {
		defer close(a.drained)
		a.drain(events, ended)
	}()
	a.serf, err = serf.Create(conf)
	if err != nil {
		_ = conf.MemberlistConfig.Transport.Shutdown() // the error says more
		close(ended)
		<-a.drained
		return nil, fmt.Errorf("%w on %s: %w", errBind, config.Bind, err)
	}
	local := a.serf.LocalMember()
	a.mu.Lock()
	a.self = endpointOf(local.Addr, local.Port)
	a.mu.Unlock()
	a.wg.Go(a.joinLoop)
	a.pings.Go(func() { a.spread(a.serf.ShutdownCh()) })
	go func() {
		<-a.stop
		<-a.serf.ShutdownCh()
		close(ended)
	}()
	return a, nil
}

func (a *Agent) serfConfig(events chan<- serf.Event) (*serf.Config, error) {
	host, port, err := splitHostPort(a.config.Bind)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	ip, advertisePort, err := a.config.advertised(ctx)
	if err != nil {
		return nil, err
	}

	m := memberlist.DefaultLANConfig()
	m.LogOutput = nil
	m.Logger = log.New(a.advise, "", 0)
	gate, err := newGuard(host, port, len(a.config.Keys) > 0, a.config.Logger, m.Logger)
	if err != nil {
		return nil, err
	}
	m.Transport = gate
	m.BindAddr, m.BindPort = host, gate.GetAutoBindPort()
	m.AdvertiseAddr, m.AdvertisePort = ip, advertisePort
	if m.AdvertisePort == 0 {
		m.AdvertisePort = m.BindPort
	}
	// In the clear the guard takes in nothing compressed.
	m.EnableCompression = len(a.config.Keys) > 0
	if len(a.config.Keys) > 0 {
		if a.keyring, err = memberlist.NewKeyring(a.config.Keys, a.config.Keys[0]); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: gossip key: %w", errConfig, err), gate.Shutdown())
		}
		m.Keyring = a.keyring
	}
	m.ProbeInterval, m.ProbeTimeout = a.config.ProbeInterval, a.config.ProbeTimeout
	m.SuspicionMult, m.SuspicionMaxTimeoutMult = 3, 2
	m.GossipInterval = calmInterval
	m.PushPullInterval = 5 * time.Second
	// Close waits for an attempt to join that is under way.
	m.TCPTimeout = 2 * time.Second
	// Without this a lost gateway that returns from another address is ignored;
	// with more than this, one that returns right after it was given up is.
	m.DeadNodeReclaimTime = time.Millisecond
	m.Merge = (*mergeGuard)(a)
	m.Alive = (*newcomers)(a)

	s := serf.DefaultConfig()
	s.NodeName = a.config.Name
	s.Tags = a.config.tags()
	s.EventCh = events
	s.MemberlistConfig = m
	s.LogOutput = nil
	s.Logger = m.Logger
	// The default of 30 s is how long a healed partition would stay noticed.
	s.ReconnectInterval = time.Second
	s.LeavePropagateDelay = a.config.LeaveDelay
	s.BroadcastTimeout = time.Second
	s.EnableNameConflictResolution = false
	return s, nil
}

// drain keeps members up to date until serf has ended.
func (a *Agent) drain(events <-chan serf.Event, ended <-chan struct{}) {
	for {
		select {
		case e := <-events:
			if m, ok := e.(serf.MemberEvent); ok {
				a.note(m)
			}
		case <-ended:
			return
		}
	}
}

func (a *Agent) note(e serf.MemberEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range e.Members {
		status := StatusAlive
		switch e.Type {
		case serf.EventMemberFailed:
			status = StatusFailed
		case serf.EventMemberLeave:
			status = StatusLeft
		case serf.EventMemberReap:
			delete(a.members, m.Name)
			continue
		case serf.EventMemberJoin, serf.EventMemberUpdate:
		default:
			continue
		}
		expect, err := strconv.Atoi(m.Tags[tagExpect])
		if err != nil {
			expect = 1
		}
		member := Member{
			Name:     m.Name,
			PeerAddr: m.Tags[tagPeer],
			Boot:     m.Tags[tagBoot],
			Version:  m.Tags[tagVersion],
			Expect:   expect,
			Status:   status,
			Addr:     endpointOf(m.Addr, m.Port).String(),
		}
		old := a.members[m.Name]
		a.members[m.Name] = member
		if m.Name != a.config.Name && (old.Status != status || old.Boot != member.Boot) {
			a.config.Logger.Info("gateway observed", slog.String("name", m.Name), slog.String("status", string(status)),
				slog.String("gossip_address", member.Addr), slog.String("peer_address", member.PeerAddr), slog.String("boot", member.Boot))
		}
	}
	a.tell()
	select {
	case a.changed <- struct{}{}:
	default: // a reader that has not come yet will see this change as well
	}
}

// Members returns all known gateways, this one among them, in order of name.
func (a *Agent) Members() []Member {
	a.mu.Lock()
	members := make([]Member, 0, len(a.members))
	for _, m := range a.members {
		members = append(members, m)
	}
	a.mu.Unlock()
	slices.SortFunc(members, func(x, y Member) int { return strings.Compare(x.Name, y.Name) })
	return members
}

// Changed receives a value when Members may have changed; changes that nobody
// has seen yet count as one. It is for one reader.
func (a *Agent) Changed() <-chan struct{} { return a.changed }

// Addr returns the address that others reach this agent at.
func (a *Agent) Addr() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.self.String()
}

// Problem returns why this gateway has found nobody of its join list, or nil.
// Joining goes on in the background.
func (a *Agent) Problem() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.problem
}

// SetBoot changes the boot that others see: the same process goes on as
// another incarnation. It returns when the news is on its way.
func (a *Agent) SetBoot(boot string) error {
	config := a.config
	config.Boot = boot
	if err := config.Validate(); err != nil {
		return err
	}
	a.tell()
	if err := a.serf.SetTags(config.tags()); err != nil {
		return fmt.Errorf("serfring: set boot: %w", err)
	}
	return nil
}

// errClosed is why there is no farewell: memberlist panics if it is asked for one then.
var errClosed = errors.New("serfring: leave: the agent is closed")

// Leave tells the others that this gateway goes for good; they see
// [StatusLeft] rather than a failure. Close must follow.
func (a *Agent) Leave() error {
	a.halt() // joining says, later than the farewell, that this one is alive
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.closed {
		return errClosed
	}
	a.tell()
	if err := a.serf.Leave(); err != nil {
		return fmt.Errorf("serfring: leave: %w", err)
	}
	return nil
}

// Close ends the agent. Without Leave before it, others see a failure.
func (a *Agent) Close() error {
	a.halt()
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	a.advise.closed.Store(true)
	if err := a.serf.Shutdown(); err != nil {
		return fmt.Errorf("serfring: close: %w", err)
	}
	<-a.drained
	a.pings.Wait()
	return nil
}

// halt ends joining and waits for it.
func (a *Agent) halt() {
	a.halted.Do(func() { close(a.stop) })
	a.wg.Wait()
}
