package serfring

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
	// Expect is the number of gateways it expects to start a cluster with.
	Expect int
	Status Status
}

// Agent takes part in the gossip. Its methods may be called by any number of
// goroutines.
type Agent struct {
	config  Config
	began   time.Time
	serf    *serf.Serf
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
	self    string // where it is; empty while it starts
	problem error
}

// endpointOf returns an address as the peer port says it.
func endpointOf(ip net.IP, port uint16) string {
	return net.JoinHostPort(ip.String(), strconv.Itoa(int(port)))
}

func (a *Agent) note(e serf.MemberEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range e.Members {
		status := StatusAlive
		switch e.Type {
		case serf.EventMemberFailed:
			status = StatusFailed
			if m.Tags[tagLeaving] != "" {
				status = StatusLeft
			}
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
			PeerAddr: endpointOf(m.Addr, m.Port),
			Boot:     m.Tags[tagBoot],
			Expect:   expect,
			Status:   status,
		}
		old := a.members[m.Name]
		a.members[m.Name] = member
		if m.Name != a.config.Name && (old.Status != status || old.Boot != member.Boot) {
			a.config.Logger.Info("gateway observed", slog.String("name", m.Name), slog.String("status", string(status)),
				slog.String("peer_address", member.PeerAddr), slog.String("boot", member.Boot))
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
		return fmt.Errorf("set boot: %w", err)
	}
	return nil
}

// tell notes that there is news to pass on.
func (a *Agent) tell() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}
