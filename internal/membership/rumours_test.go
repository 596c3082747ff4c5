package membership

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
)

// Times of the gossip in virtual time: until news is everywhere, and until one that says
// nothing any more is called failed.
const (
	newsTakes    = 50 * time.Millisecond
	failureTakes = 2 * time.Second
)

// rumours are a gossip in memory: all who have joined each other know each other.
type rumours struct {
	// forged: what it says of addresses is false.
	forged atomic.Bool

	mu     sync.Mutex
	agents []*rumourAgent // that have been, in the order of their starts
}

type rumourAgent struct {
	all     *rumours
	self    serfring.Member // guarded by all.mu, as all below
	join    []string
	group   *rumourAgent // of those who know each other; nil: itself
	closed  bool
	changed chan struct{}
}

func (r *rumours) start(peer string, conf serfring.Config) *rumourAgent {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &rumourAgent{all: r, join: conf.Join, changed: make(chan struct{}, 1), self: serfring.Member{
		Name: conf.Name, PeerAddr: peer, Boot: conf.Boot, Expect: conf.Expect, Status: serfring.StatusAlive,
	}}
	r.agents = append(r.agents, a)
	for _, b := range r.agents { // who waited for this one joins, too
		for _, addr := range b.join {
			for _, c := range r.agents {
				if !b.closed && !c.closed && c.self.PeerAddr == addr {
					b.root().group = c.root()
				}
			}
		}
	}
	r.tell()
	return a
}

func (a *rumourAgent) root() *rumourAgent {
	for a.group != nil && a.group != a {
		a = a.group
	}
	a.group = nil
	return a
}

// tell wakes all when the news has got to them. The caller holds mu.
func (r *rumours) tell() {
	for _, a := range r.agents {
		if a.closed {
			continue
		}
		time.AfterFunc(newsTakes, func() {
			select {
			case a.changed <- struct{}{}:
			default:
			}
		})
	}
}

func (a *rumourAgent) Members() []serfring.Member {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	known := make(map[string]serfring.Member)
	for _, b := range a.all.agents { // the newest of a name counts
		if b.root() == a.root() {
			known[b.self.Name] = b.self
		}
	}
	var members []serfring.Member
	for _, m := range known {
		if a.all.forged.Load() {
			m.PeerAddr = "10.9.9.9:7080"
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(x, y serfring.Member) int { return strings.Compare(x.Name, y.Name) })
	return members
}

func (a *rumourAgent) Changed() <-chan struct{} { return a.changed }

func (a *rumourAgent) SetBoot(boot string) error {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.self.Boot = boot
	a.all.tell()
	return nil
}

func (a *rumourAgent) Leave() error {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.self.Status = serfring.StatusLeft
	a.all.tell()
	return nil
}

func (a *rumourAgent) Close() error {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.closed = true
	time.AfterFunc(failureTakes, func() {
		a.all.mu.Lock()
		defer a.all.mu.Unlock()
		if a.self.Status == serfring.StatusAlive {
			a.self.Status = serfring.StatusFailed
			a.all.tell()
		}
	})
	return nil
}
