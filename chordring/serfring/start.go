package serfring

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"
)

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
	conf := a.serfConfig(events)
	// Serf sends events while it holds its member lock: one goroutine does
	// nothing but take them, and never calls serf.
	ended := make(chan struct{})
	go func() {
		defer close(a.drained)
		a.drain(events, ended)
	}()
	var err error
	a.serf, err = serf.Create(conf)
	if err != nil {
		_ = conf.MemberlistConfig.Transport.Shutdown() // the error says more
		close(ended)
		<-a.drained
		return nil, fmt.Errorf("%w: %w", errStart, err)
	}
	a.mu.Lock()
	a.self = config.Links.Addr().String()
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

func (a *Agent) serfConfig(events chan<- serf.Event) *serf.Config {
	m := memberlist.DefaultLANConfig()
	m.LogOutput = nil
	m.Logger = log.New(a.advise, "", 0)
	at := netip.MustParseAddrPort(a.config.Links.Addr().String()) // Validate has seen it
	c := a.config.Carrier
	c.links, c.self, c.ip, c.port = a.config.Links, a.config.Name, at.Addr().AsSlice(), int(at.Port())
	m.Transport = &starting{Carrier: c, ready: sync.OnceFunc(func() { m.Delegate = filter{m.Delegate} })} // serf has set its own
	m.EnableCompression = false
	m.ProbeInterval, m.ProbeTimeout = a.config.ProbeInterval, a.config.ProbeTimeout
	m.SuspicionMult, m.SuspicionMaxTimeoutMult = 3, 2
	m.GossipInterval = calmInterval
	m.PushPullInterval = 5 * time.Second
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
	s.DisableCoordinates = true
	return s
}

// starting calls ready when memberlist's configuration is complete, before anything runs.
type starting struct {
	*Carrier
	ready func()
}

// FinalAdvertiseAddr implements memberlist.Transport. Memberlist calls it when it starts, and
// again later.
func (s *starting) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	s.ready()
	return s.Carrier.FinalAdvertiseAddr(ip, port)
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

// errClosed is why there is no farewell: memberlist panics if it is asked for one then.
var errClosed = errors.New("leave: the agent is closed")

// Leave tells the others that this gateway goes for good; they see
// [StatusLeft] rather than a failure. Whom a first attempt to join has not brought
// back yet is not told, and may see a failure. Close must follow.
func (a *Agent) Leave() error {
	a.halt() // joining says, later than the farewell, that this one is alive
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.closed {
		return errClosed
	}
	a.tell()
	// Serf loses its own farewell if two others exchange their states while it spreads: one has
	// heard it, and what it says of the leaver's time makes the other take it for old. The tag
	// travels with the address, and cannot be taken for older than it.
	if err := a.serf.SetTags(farewell(a.serf.LocalMember().Tags)); err != nil {
		a.config.Logger.Debug("the farewell may look like a failure", slog.Any("error", err))
	}
	if err := a.serf.Leave(); err != nil {
		return fmt.Errorf("leave: %w", err)
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
		return fmt.Errorf("close: %w", err)
	}
	<-a.drained
	a.pings.Wait()
	return nil
}

// halt ends joining and waits for it.
func (a *Agent) halt() {
	a.halted.Do(func() {
		close(a.stop)
		a.config.Carrier.hangUp()
	})
	a.wg.Wait()
}
