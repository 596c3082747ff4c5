package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/telemetry"
)

var (
	_ admin.Source     = (*node)(nil)
	_ telemetry.Source = stateSource{}
)

// Ready implements admin.Source.
func (n *node) Ready() (ready bool, reason string) {
	if n.leaving.Load() {
		return false, "draining: this gateway is being taken out"
	}
	if n.cluster == nil || n.gateway == nil {
		return false, "starting"
	}
	switch standing := n.cluster.Standing(); {
	case standing.Node != 0 && !standing.Valid(time.Now()):
		return false, "no lease: the leader has not renewed it"
	case standing.Node == 0:
		// Gossip comes first: without it nobody lets this gateway in.
		for _, err := range []error{n.gossip.Problem(), n.cluster.Problem()} {
			if err != nil {
				return false, "not in the cluster: " + err.Error()
			}
		}
		return false, "not in the cluster yet, or no lease yet"
	}
	if !n.agreed.Load() {
		return false, "the cluster has not agreed on the pools yet"
	}
	for _, p := range n.gateway.Pools() {
		if p.Forming {
			return false, "pool " + p.Name + " is forming its line"
		}
	}
	return true, ""
}

// Report implements admin.Source.
func (n *node) Report(pool string, entries int) admin.Report {
	r := admin.Report{Status: n.status(), Past: make(map[string][]admin.AccessWindow), Tokens: make(map[string][]int), Entries: make(map[string]admin.Entries)}
	now := time.Now()
	for i := range r.Status.Pools {
		p := &r.Status.Pools[i]
		oldest := n.gateway.Oldest(p.Name)
		p.OldestSeconds, p.AccessWindow.OldestMillis = oldest.Seconds(), millis(oldest)
		r.Tokens[p.Name] = n.gateway.Tokens(p.Name)
		for _, w := range n.metrics.Pool(p.Name).Past(now, admin.PastStepSeconds*time.Second, admin.PastValues) {
			r.Past[p.Name] = append(r.Past[p.Name], accessWindow(w))
		}
		if entries > 0 && (pool == "" || pool == p.Name) {
			r.Entries[p.Name] = n.entries(n.gateway.Line(p.Name, entries))
		}
	}
	return r
}

// status is this gateway's own.
func (n *node) status() admin.Status {
	v, _ := buildVersion()
	ready, reason := n.Ready()
	s := admin.Status{Version: v, Gateway: admin.Gateway{
		Name: n.cfg.Node.Name, Ready: ready, Reason: reason, UptimeSeconds: time.Since(n.started).Seconds(),
	}}
	if n.cluster == nil || n.gateway == nil {
		return s
	}
	view := n.cluster.View()
	self, _ := n.cluster.Self()
	s.Gateway.Node = uint64(self)
	s.Gateway.LeaseSeconds = max(0, time.Until(n.cluster.Standing().Until).Seconds())
	s.Cluster.View = view.Number
	s.Cluster.Leader, _ = n.cluster.Leader()
	voters, _ := n.cluster.Voting()
	s.Cluster.Voters, s.Cluster.LossesTolerated = len(voters), n.tolerates(voters)
	s.Cluster.Members = n.memberStatus(view, self)
	for i := range s.Cluster.Members {
		m := &s.Cluster.Members[i]
		m.Votes = slices.Contains(voters, m.Name)
	}
	for _, p := range n.gateway.Pools() {
		s.Pools = append(s.Pools, n.poolStatus(view, p))
	}
	return s
}

func (n *node) memberStatus(view *membership.View, self kmutex.Node) []admin.Member {
	links := make(map[kmutex.Node]transport.LinkStatus)
	for _, l := range n.links.Links() {
		links[l.Node] = l
	}
	var out []admin.Member
	for _, m := range view.Members {
		link := links[m.Node]
		member := admin.Member{
			Name: m.Name, Node: uint64(m.Node), Addr: m.PeerAddr, Status: string(m.Status),
			Self: m.Node == self, LinkUp: m.Node == self || link.Up,
			Copies: view.Ring().Successors(m.Name, n.cfg.Cluster.Replicas),
		}
		if link.RTT > 0 {
			rtt := float64(link.RTT) / float64(time.Millisecond)
			member.RTTMillis = &rtt
		}
		out = append(out, member)
	}
	out = append(out, n.lostMembers(view)...)
	slices.SortStableFunc(out, func(a, b admin.Member) int { return strings.Compare(a.Name, b.Name) })
	names := make([]string, len(out))
	for i, m := range out {
		names[i] = m.Name
	}
	ring := chordring.New(names).Names()
	for i := range out {
		out[i].RingPlace = 1 + slices.Index(ring, out[i].Name)
	}
	return out
}

// lostMembers are the gateways whose leases may still run, and those that have
// gone without a word and that gossip has not given up.
func (n *node) lostMembers(view *membership.View) []admin.Member {
	gone := make(map[string]admin.Member)
	for _, l := range view.Lost {
		heir, _ := view.Member(l.Heir)
		m := admin.Member{Name: l.Name, Node: uint64(l.Node), Status: admin.StatusLost, Heir: heir.Name}
		if l.Leased {
			m.Status = admin.StatusSuspended
		}
		gone[l.Name] = m // the last one of this name
	}
	failed := make(map[string]bool)
	for _, m := range n.gossip.Members() {
		failed[m.Name] = m.Status == serfring.StatusFailed
	}
	var out []admin.Member
	for name, m := range gone {
		if _, back := view.Named(name); m.Status == admin.StatusSuspended || failed[name] && !back {
			out = append(out, m)
		}
	}
	return out
}

func (n *node) poolStatus(view *membership.View, p gateway.PoolStatus) admin.Pool {
	home, _ := view.Member(p.Home)
	out := admin.Pool{
		Name: p.Name, K: p.K, Binding: string(p.Binding), Epoch: p.Epoch, Home: home.Name,
		InFlight: p.InFlight, Waiting: p.Waiting, BatonHere: p.Baton, FreeTokensHere: p.Free,
		Withheld: p.Withheld,
	}
	out.AccessWindow = accessWindow(n.metrics.Pool(p.Name).Window())
	return out
}

func accessWindow(w telemetry.Window) admin.AccessWindow {
	return admin.AccessWindow{MeanMillis: millis(w.Mean()), MaxMillis: millis(w.Max), Count: w.Count, OldestMillis: millis(w.Waiting)}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// stateSource mirrors a node's state into metrics.
type stateSource struct{ n *node }

// State implements telemetry.Source.
func (s stateSource) State() telemetry.State {
	view := s.n.cluster.View()
	out := telemetry.State{View: view.Number, Members: make(map[string]int), ReplicaLag: make(map[string]int)}
	for _, m := range view.Members {
		out.Members[string(m.Status)]++
	}
	for _, status := range []string{admin.StatusAlive, admin.StatusSuspended, admin.StatusLost} {
		out.Members[status] += 0 // known from the start
	}
	for _, m := range s.n.lostMembers(view) {
		out.Members[m.Status]++
	}
	standing := s.n.cluster.Standing()
	out.Lease = max(0, time.Until(standing.Until))
	s.agreement(&out)
	s.process(&out)
	for _, p := range s.n.gateway.Pools() {
		state := telemetry.PoolState{
			Name: p.Name, Capacity: p.K, InFlight: p.InFlight, Waiting: p.Waiting,
			Oldest: s.n.gateway.Oldest(p.Name), QueueLimit: p.QueueLimit,
			TicketsWaiting: p.TicketsWaiting, TicketsHolding: p.TicketsHolding, TokensRunning: p.InFlight, TokensFree: p.Free, Upstreams: make(map[string]bool),
		}
		if p.Baton {
			state.Baton = p.Epoch*batonsPerEpoch + p.BatonNumber + 1
		}
		if p.Home == standing.Node {
			state.TokensWithheld = p.Withheld
		}
		for node, lag := range p.ReplicaLag {
			if m, in := view.Member(node); in {
				out.ReplicaLag[m.Name] += lag
			}
		}
		for _, u := range s.n.handler.Upstreams() {
			if u.Pool == p.Name {
				state.Upstreams[u.URL] = u.Healthy
			}
		}
		out.Pools = append(out.Pools, state)
	}
	return out
}

// batonsPerEpoch makes a baton's number one that grows over epochs, too, and that is
// exact as a float.
const batonsPerEpoch = 10_000_000_000

// agreement is what s knows of the leader, the voters and the links.
func (s stateSource) agreement(out *telemetry.State) {
	leader, _ := s.n.cluster.Leader()
	out.Leader = leader == s.n.cfg.Node.Name
	names, self := s.n.cluster.Voting()
	out.Voter, out.Voters, out.LossesTolerated = self, len(names), s.n.tolerates(names)
	out.Peers = make(map[string]telemetry.PeerState)
	for _, l := range s.n.links.Links() {
		out.Peers[l.Name] = telemetry.PeerState{Up: l.Up, RTT: l.RTT}
	}
}

// process is what s knows of the process itself.
func (s stateSource) process(out *telemetry.State) {
	out.Draining = s.n.leaving.Load()
	if s.n.clients != nil {
		out.ClientConnections = s.n.clients.Connections()
	}
	if read := s.n.read.Load(); read != nil {
		out.Reloaded, out.ReloadFailed = read.at, read.failed
	}
	out.Certificates = make(map[string]time.Time)
	if expires := s.n.peerExpiry.Load(); expires != nil && !expires.IsZero() {
		out.Certificates["peers"] = *expires
	}
	if s.n.certificate != nil {
		if pair, err := s.n.certificate.Get(nil); err == nil {
			out.Certificates["clients"] = pair.Leaf.NotAfter
		}
	}
}

// tolerates returns how many of the voters may be lost now while the others still
// agree: those that are reached from here, less a majority.
func (n *node) tolerates(voters []string) int {
	up := map[string]bool{n.cfg.Node.Name: true}
	for _, l := range n.links.Links() {
		up[l.Name] = l.Up
	}
	reached := 0
	for _, name := range voters {
		if up[name] {
			reached++
		}
	}
	return reached - (len(voters)/2 + 1)
}

// sample notes once a second what has no event to be counted by, until ctx ends.
func (n *node) sample(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	leader := ""
	for {
		for _, p := range n.gateway.Pools() {
			if p.Waiting > 0 {
				n.metrics.Pool(p.Name).Waiting(n.gateway.Oldest(p.Name))
			}
		}
		if now, known := n.cluster.Leader(); known && now != leader {
			if leader != "" {
				n.metrics.LeaderChanged()
			}
			n.log.Info("leader changed", slog.String("old", leader), slog.String("new", now))
			leader = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
