package membership

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
)

// outsiders are the gateways that are no members, that gossip sees alive, and that answer
// another member, if there is one, and not this leader.
type outsiders struct {
	mu     sync.Mutex
	next   time.Time // when to look again
	asking bool
	names  []string
}

// maxOutsiders bounds how many gateways one look tries.
const maxOutsiders = 16

func (o *outsiders) get() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.names)
}

// begin reports whether it is time to look. The caller calls end when it has.
func (o *outsiders) begin(now time.Time, pause time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asking || now.Before(o.next) {
		return false
	}
	o.asking, o.next = true, now.Add(pause)
	return true
}

func (o *outsiders) end(names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asking, o.names = false, names
}

// watchOutsiders looks, as the leader, for gateways that another leader could let in.
// One of them is no reason to hand the lead over, so it looks for two.
func (j *judge) watchOutsiders(now time.Time) {
	if !j.outsiders.begin(now, j.lease()/6) {
		return
	}
	var outsiders []serfring.Member
	if view := j.View(); j.raft.State() == raft.Leader && len(j.voters()) > 1 {
		for _, p := range alive(j.config.Discovery.Members()) {
			if m, in := view.Named(p.Name); (!in || m.Boot != p.Boot) && p.Name != j.config.Name && len(outsiders) < maxOutsiders {
				outsiders = append(outsiders, p)
			}
		}
	}
	if len(outsiders) < 2 {
		j.outsiders.end(nil)
		return
	}
	j.wg.Go(func() { j.outsiders.end(j.unreachedOutsiders(outsiders)) })
}

// unreachedOutsiders returns those of the outsiders that do not answer here and answer a member
// that is chosen at random. A leader that is the only member has nobody to ask.
func (j *judge) unreachedOutsiders(outsiders []serfring.Member) []string {
	members := slices.DeleteFunc(slices.Clone(j.View().Members), func(m Member) bool { return m.Name == j.config.Name })
	reached := func(string) bool { return true }
	if len(members) > 0 {
		other := members[rand.IntN(len(members))] //nolint:gosec // no secret
		reached = func(name string) bool { return name != other.Name && j.peers.reachedFrom(other, name) }
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var names []string
	for _, p := range outsiders {
		wg.Go(func() {
			if j.peers.reaches(j.closing, p.PeerAddr) || !reached(p.Name) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			names = append(names, p.Name)
		})
	}
	wg.Wait()
	return names
}
