package main

import (
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/admin"
	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/gateway"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership"
	"github.com/kgate/kgate/telemetry"
	"github.com/kgate/kgate/transport"
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
		p.OldestSeconds = n.gateway.Oldest(p.Name).Seconds()
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
	s.Cluster.Members = n.memberStatus(view, self)
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
		Name: p.Name, K: p.K, Binding: p.Binding, Epoch: p.Epoch, Home: home.Name,
		InFlight: p.InFlight, Waiting: p.Waiting, BatonHere: p.Baton, FreeTokensHere: p.Free,
		Withheld: p.Withheld,
	}
	out.AccessWindow = accessWindow(n.metrics.Pool(p.Name).Window())
	return out
}

func accessWindow(w telemetry.Window) admin.AccessWindow {
	return admin.AccessWindow{MeanMillis: millis(w.Mean()), MaxMillis: millis(w.Max), Count: w.Count}
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
	for _, l := range view.Lost {
		if l.Leased {
			out.Members["suspended"]++
		}
	}
	standing := s.n.cluster.Standing()
	out.Lease = max(0, time.Until(standing.Until))
	for _, p := range s.n.gateway.Pools() {
		state := telemetry.PoolState{
			Name: p.Name, Capacity: p.K, InFlight: p.InFlight, Waiting: p.Waiting,
			BatonHeld: p.Baton, TokensRunning: p.InFlight, TokensFree: p.Free, Upstreams: make(map[string]bool),
		}
		if p.Home == standing.Node {
			state.TokensQuarantined = p.Withheld
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
