package main

import (
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/admin"
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

// Status implements admin.Source.
func (n *node) Status() admin.Status {
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
		}
		if link.RTT > 0 {
			rtt := float64(link.RTT) / float64(time.Millisecond)
			member.RTTMillis = &rtt
		}
		out = append(out, member)
	}
	for _, l := range view.Lost {
		if l.Leased {
			out = append(out, admin.Member{Name: l.Name, Node: uint64(l.Node), Status: "suspended"})
		}
	}
	slices.SortStableFunc(out, func(a, b admin.Member) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (n *node) poolStatus(view *membership.View, p gateway.PoolStatus) admin.Pool {
	home, _ := view.Member(p.Home)
	out := admin.Pool{
		Name: p.Name, K: p.K, Binding: p.Binding, Epoch: p.Epoch, Home: home.Name,
		InFlight: p.InFlight, Waiting: p.Waiting, BatonHere: p.Baton, FreeTokensHere: p.Free,
		Withheld: p.Withheld,
	}
	w := n.metrics.Pool(p.Name).Window()
	out.AccessWindow = admin.AccessWindow{MaxMillis: millis(w.Max), Count: w.Count}
	if w.Count > 0 {
		out.AccessWindow.MeanMillis = millis(w.Sum) / float64(w.Count)
	}
	return out
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
