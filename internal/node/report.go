package node

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/telemetry"
)

// report is a node's state for operators, other gateways and the metrics.
type report struct {
	*Node
	started time.Time
	awake   awake
}

var (
	_ admin.Source     = (*report)(nil)
	_ admin.Lines      = (*report)(nil)
	_ telemetry.Source = (*report)(nil)
)

func (r *report) Report(pool string, entries int) admin.Report {
	out := admin.Report{Status: r.status(), Past: make(map[string][]admin.AccessWindow), Tokens: make(map[string][]int), Entries: make(map[string]admin.Entries)}
	now := time.Now()
	for i := range out.Status.Pools {
		p := &out.Status.Pools[i]
		oldest := r.pools.gateway.Oldest(p.Name)
		p.OldestSeconds, p.AccessWindow.OldestMillis = oldest.Seconds(), millis(oldest)
		out.Tokens[p.Name] = r.pools.gateway.Tokens(p.Name)
		for _, w := range r.cfg.Metrics.Pool(p.Name).Past(now, admin.PastStepSeconds*time.Second, admin.PastValues) {
			out.Past[p.Name] = append(out.Past[p.Name], accessWindow(w))
		}
		if entries > 0 && (pool == "" || pool == p.Name) {
			out.Entries[p.Name] = r.entries(r.pools.gateway.Line(p.Name, entries))
		}
	}
	return out
}

// status returns this gateway's own status.
func (r *report) status() admin.Status {
	ready, reason := r.Ready()
	s := admin.Status{Version: r.cfg.Version, Gateway: admin.Gateway{
		Name: r.cfg.Name, Ready: ready, Reason: reason, Drained: r.drained.Load(), UptimeSeconds: time.Since(r.started).Seconds(),
	}}
	cluster := r.peers.cluster
	view := cluster.View()
	self, _ := cluster.Self()
	s.Gateway.Node = uint64(self)
	s.Gateway.LeaseSeconds = max(0, time.Until(cluster.Standing().Until).Seconds())
	s.Cluster.View = view.Number
	s.Cluster.Leader, _ = cluster.Leader()
	voters, _ := cluster.Voting()
	s.Cluster.Voters, s.Cluster.LossesTolerated = len(voters), r.peers.tolerates(voters)
	s.Cluster.Members = r.peers.members(view)
	for i := range s.Cluster.Members {
		m := &s.Cluster.Members[i]
		m.Votes = slices.Contains(voters, m.Name)
	}
	for _, p := range r.pools.gateway.Pools() {
		s.Pools = append(s.Pools, r.pool(view, p))
	}
	s.Gateway.Troubles = slices.Concat(r.cfg.Troubles(), r.unlike(), r.disk(), r.forgotten(s.Pools))
	s.Events = r.peers.history.recent(time.Now())
	return s
}

// unlike says where the k of pools and upstreams differs from this gateway's configuration.
func (r *report) unlike() []string {
	var out []string
	configured := *r.pools.configured.Load()
	for _, agreed := range r.peers.cluster.View().Pools {
		if here, ok := configured[agreed.Name]; ok {
			spec := here.spec()
			out = append(out, unlike(&agreed, &spec)...)
		}
	}
	return out
}

func unlike(agreed, spec *membership.Pool) []string {
	var out []string
	say := func(format string, args ...any) {
		out = append(out, "pool "+agreed.Name+fmt.Sprintf(format, args...))
	}
	switch each := agreed.Classes != nil; {
	case !each && spec.Classes != nil:
		say(": the configuration here gives each upstream a k of its own, which does not count: the cluster has agreed on k %d for all of them together. Write k: %d, or give the pool another name", agreed.K, agreed.K)
	case each && spec.Classes == nil:
		say(": the configuration here has one k, which does not count: the cluster has agreed on a k for each upstream. Write them (kgate upstreams), or give the pool another name")
	case !each && agreed.K != spec.K:
		say(" has k %d, and the configuration here says %d: write %d there, or kgate pool set %s --k %d", agreed.K, spec.K, agreed.K, agreed.Name, spec.K)
	}
	if agreed.Classes == nil || spec.Classes == nil {
		return out
	}
	written := kOfEach(spec.Classes)
	for _, c := range agreed.Classes {
		k, ok := written[c.Upstream]
		delete(written, c.Upstream)
		switch set := fmt.Sprintf("kgate pool set %s --upstream %s --k %d", agreed.Name, c.Upstream, k); {
		case c.Name != "" || k == c.K: // one of a name's servers, or as it should be
		case ok:
			say(": k of %s is %d, and the configuration here says %d: write %d there, or %s", c.Upstream, c.K, k, c.K, set)
		default:
			say(": the upstream %s, with k %d, is not in the configuration here: write it there, or %s", c.Upstream, c.K, set)
		}
	}
	for _, url := range slices.Sorted(maps.Keys(written)) {
		say(": the upstream %s gets no requests, and the configuration here says k %d: remove it there, or kgate pool set %s --upstream %s --k %d", url, written[url], agreed.Name, url, written[url])
	}
	return out
}

// forgotten names a slot of each pool that the program holds for longer than the pool allows.
func (r *report) forgotten(pools []admin.Pool) []string {
	var out []string
	for _, p := range pools {
		longest := r.pools.holdMax(p.Name)
		if longest <= 0 {
			continue
		}
		if held := r.pools.gateway.Own(p.Name, longest); len(held) > 0 {
			out = append(out, fmt.Sprintf("pool %s: slots of the program that are held for longer than the %v that the pool allows: %d, such as %q for %v: has somebody forgotten to release it",
				p.Name, longest, len(held), shortened(held[0].Info.Note), held[0].For.Round(time.Second)))
		}
	}
	return out
}

func (r *report) pool(view *membership.View, p gateway.PoolStatus) admin.Pool {
	home, _ := view.Member(p.Home)
	out := admin.Pool{
		Name: p.Name, K: p.K, Binding: string(p.Binding), Epoch: p.Epoch, Home: home.Name,
		InFlight: p.InFlight, Waiting: p.Waiting, BatonHere: p.Baton, FreeTokensHere: p.Free,
		Withheld: p.Withheld,
	}
	if p.Rate != (membership.Rate{}) {
		out.Rate = &admin.PoolRate{Down: p.Rate.Down, Up: p.Rate.Up, DownHere: int64(p.Down.Share), UpHere: int64(p.Up.Share)}
	}
	counts := r.cfg.Metrics.Pool(p.Name)
	out.AccessWindow = accessWindow(counts.Window())
	crowd := r.pools.gateway.Crowd(p.Name)
	out.TicketsHolding, out.OldestHoldSeconds = p.TicketsHolding, crowd.OldestHold.Seconds()
	if crowd.Places > 0 {
		out.Client = admin.Client{Name: crowd.Client.String(), Places: crowd.Places, Of: crowd.All}
	}
	out.Recent = recent(counts.Recent())
	out.Upstreams, out.Shares = r.upstreams(&p), shares(p.Sharing)
	return out
}

func accessWindow(w telemetry.Window) admin.AccessWindow {
	return admin.AccessWindow{MeanMillis: millis(w.Mean()), MaxMillis: millis(w.Max), Count: w.Count, OldestMillis: millis(w.Waiting)}
}

func (r *report) State() telemetry.State {
	view := r.peers.cluster.View()
	out := telemetry.State{View: view.Number, Members: make(map[string]int), ReplicaLag: make(map[string]int)}
	for _, m := range view.Members {
		out.Members[string(m.Status)]++
	}
	for _, status := range []string{admin.StatusAlive, admin.StatusSuspended, admin.StatusLost} {
		out.Members[status] += 0 // known from the start
	}
	for _, m := range r.peers.lost(view) {
		out.Members[m.Status]++
	}
	standing := r.peers.cluster.Standing()
	out.Lease = max(0, time.Until(standing.Until))
	r.agreement(&out)
	out.Draining = r.leaving.Load()
	r.cfg.State(&out)
	out.DiskSize, out.DiskFree, _ = diskSpace(r.cfg.DataDir)
	configured := *r.pools.configured.Load()
	for _, p := range r.pools.gateway.Pools() {
		state := telemetry.PoolState{
			Name: p.Name, Capacity: p.K, InFlight: p.InFlight, Waiting: p.Waiting,
			Oldest: r.pools.gateway.Oldest(p.Name), QueueLimit: p.QueueLimit,
			TicketsWaiting: p.TicketsWaiting, TicketsHolding: p.TicketsHolding, TokensRunning: p.InFlight, TokensFree: p.Free, Upstreams: make(map[string]telemetry.UpstreamState),
			Configured: configured[p.Name].K, OldestHold: r.pools.gateway.Crowd(p.Name).OldestHold,
		}
		if p.Rate != (membership.Rate{}) {
			state.Rates = map[string]telemetry.RateState{
				telemetry.Down: {Limit: p.Rate.Down, Share: p.Down.Gained, Moved: p.Down.Moved},
				telemetry.Up:   {Limit: p.Rate.Up, Share: p.Up.Gained, Moved: p.Up.Moved},
			}
		}
		if p.Baton {
			state.Baton = p.Epoch*batonsPerEpoch + p.BatonNumber + 1
		}
		if p.Home == standing.Node {
			state.TokensWithheld = p.Withheld
		}
		if p.Sharing != nil {
			state.Sharing = &telemetry.SharingState{Clients: p.Sharing.Present}
			if len(p.Sharing.Most) > 0 {
				state.Sharing.MostSlots = p.Sharing.Most[0].Slots
			}
		}
		for node, lag := range p.ReplicaLag {
			if m, in := view.Member(node); in {
				out.ReplicaLag[m.Name] += lag
			}
		}
		for u := range r.upstreamsOf(p.Name) {
			one := telemetry.UpstreamState{Healthy: u.Healthy, InFlight: u.InFlight, Quiet: u.Quiet, Answered: u.Answered}
			one.K, one.SlotsInUse = slotsFor(&p, u.URL)
			state.Upstreams[u.URL] = one
		}
		out.Pools = append(out.Pools, state)
	}
	return out
}

// batonsPerEpoch makes the batons' numbers grow over epochs, too. They stay exact as floats.
const batonsPerEpoch = 10_000_000_000

// agreement adds the leader, the voters and the links.
func (r *report) agreement(out *telemetry.State) {
	leader, _ := r.peers.cluster.Leader()
	out.Leader, out.Differs = leader == r.cfg.Name, r.peers.cluster.Differs()
	names, self := r.peers.cluster.Voting()
	out.Voter, out.Voters, out.LossesTolerated = self, len(names), r.peers.tolerates(names)
	out.Peers = make(map[string]telemetry.PeerState)
	for _, l := range r.peers.links.Links() {
		out.Peers[l.Name] = telemetry.PeerState{Up: l.Up, RTT: l.RTT}
	}
}
