package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/telemetry"
)

// peers is this gateway's part in the cluster: links to the others, gossip about the members, and the
// agreed views.
type peers struct {
	cfg     Config
	links   *transport.Transport
	carrier *serfring.Carrier
	agreed  *membership.Carrier
	gossip  *serfring.Agent
	cluster *membership.Cluster
	history history
}

// startLinks opens the peer port. Messages for pools go to g.
func (p *peers) startLinks(g *gateway.Gateway) error {
	cfg := p.cfg.Peers.Links
	cfg.Name, cfg.Handler, cfg.Receive = p.cfg.Name, g, g.ReceivePayload
	p.carrier, p.agreed = serfring.NewCarrier(), membership.NewCarrier()
	cfg.Answer = func(ctx context.Context, from transport.Caller, name string, body []byte) ([]byte, error) {
		if name == serfring.Question {
			return p.carrier.Answer(ctx, from, body)
		}
		return g.Answer(ctx, from, name, body)
	}
	cfg.Changed = func(change transport.Change) {
		p.agreed.Changed(change)
		g.ConnectionChanged(change)
	}
	cfg.Datagram = func(ch wire.Channel, from transport.Caller, data []byte) {
		p.carrier.Datagram(ch, from, data)
		p.agreed.Datagram(ch, from, data)
		g.Datagram(ch, from, data)
	}
	cfg.Observer, cfg.Logger = linkObserver{p.cfg.Metrics}, p.cfg.Logger
	// A silent link is down after half a lease if something depends on it, else after three
	// quarters. A link that stays down for half a lease is reported.
	cfg.PingInterval = p.cfg.Peers.Lease / 2
	var err error
	if p.links, err = transport.Listen(cfg); err != nil {
		return fmt.Errorf("the address for other gateways: %w", err)
	}
	return nil
}

// startGossip begins to look for other gateways as the incarnation boot.
func (p *peers) startGossip(boot string) error {
	cfg, lease := p.cfg.Peers.Gossip, p.cfg.Peers.Lease
	cfg.Name, cfg.Boot, cfg.Version, cfg.Links, cfg.Carrier, cfg.Logger = p.cfg.Name, boot, p.cfg.Version, p.links, p.carrier, p.cfg.Logger
	// Gossip only suspects, so it may ask seldom; its timeout must allow for a round trip.
	cfg.ProbeInterval, cfg.ProbeTimeout = max(200*time.Millisecond, lease/5), max(100*time.Millisecond, lease/8)
	var err error
	p.gossip, err = serfring.Start(cfg)
	return err
}

// startCluster joins the cluster, or begins one. g reports the gateways whose reports its pools miss.
func (p *peers) startCluster(ctx context.Context, boot string, g *gateway.Gateway) error {
	cfg := &p.cfg.Peers
	var err error
	p.cluster, err = membership.Start(ctx, membership.Config{
		Name: p.cfg.Name, Boot: boot, PeerAddr: p.links.Addr().String(), DataDir: p.cfg.DataDir,
		BootstrapExpect: cfg.Gossip.Expect, Joining: len(cfg.Gossip.Join) > 0, Witness: p.cfg.Witness, Discovery: p.gossip, Links: p.links, Missing: g.Missing,
		Carrier: p.agreed, Lease: cfg.Lease, AdminTokens: p.cfg.AdminTokens,
		Stored:    func(took time.Duration) { p.cfg.Metrics.DiskWrite(telemetry.DiskRaft, took) },
		Committed: p.cfg.Metrics.Committed, Logger: p.cfg.Logger,
	})
	return err
}

// entitled returns this gateway's incarnation while it has a lease, else 0.
func (p *peers) entitled() uint64 {
	s := p.cluster.Standing()
	if !s.Valid(time.Now()) {
		return 0
	}
	return uint64(s.Node)
}

// notReady returns why this gateway is no member, or has no lease; empty: it is, and has one.
func (p *peers) notReady() string {
	switch standing := p.cluster.Standing(); {
	case standing.Node != 0 && !standing.Valid(time.Now()):
		return "no lease: the leader has not renewed it"
	case standing.Node == 0:
		// Gossip comes first: without it no gateway lets this one in.
		if err := errors.Join(p.gossip.Problem(), p.cluster.Problem()); err != nil {
			return "not in the cluster: " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		return "not in the cluster yet, or no lease yet"
	}
	return ""
}

// members describes the gateways of a view and the lost gateways.
func (p *peers) members(view *membership.View) []admin.Member {
	links := make(map[kmutex.Node]transport.LinkStatus)
	for _, l := range p.links.Links() {
		links[l.Node] = l
	}
	var out []admin.Member
	for _, m := range view.Members {
		link, known := links[m.Node]
		if !known { // this gateway is in no view
			_, link.Up = p.links.Proved(m.Name)
		}
		member := admin.Member{
			Name: m.Name, Node: uint64(m.Node), Addr: m.PeerAddr, Status: string(m.Status),
			Self: m.Name == p.cfg.Name, LinkUp: m.Name == p.cfg.Name || link.Up, Witness: m.Witness, // itself also as it was
		}
		if !m.Witness {
			member.Copies = view.Ring().Successors(m.Name, admission.Replicas)
		}
		if link.RTT > 0 {
			rtt := millis(link.RTT)
			member.RTTMillis = &rtt
		}
		out = append(out, member)
	}
	out = append(out, p.lost(view)...)
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

// lost describes the gateways whose leases may still run, and the gateways that have gone without
// leaving and either vote, or are remembered by gossip and have not been taken out.
func (p *peers) lost(view *membership.View) []admin.Member {
	gone, takenOut := make(map[string]admin.Member), make(map[string]bool)
	for _, l := range view.Lost {
		successor, _ := view.Member(l.Successor)
		m := admin.Member{Name: l.Name, Node: uint64(l.Node), Status: admin.StatusLost, Successor: successor.Name, LostReason: l.Reason}
		if l.Leased {
			m.Status = admin.StatusSuspended
		}
		gone[l.Name] = m // the last incarnation of this name
		takenOut[l.Name] = l.TakenOut()
	}
	failed := make(map[string]bool)
	for _, m := range p.gossip.Members() {
		failed[m.Name] = m.Status == serfring.StatusFailed && !takenOut[m.Name]
	}
	voters, _ := p.cluster.Voting()
	var out []admin.Member
	for name, m := range gone {
		awaited := failed[name] || slices.Contains(voters, name)
		if _, back := view.Named(name); m.Status == admin.StatusSuspended || awaited && !back {
			out = append(out, m)
		}
	}
	return out
}

// tolerates returns how many voters may be lost now while the others still agree: the voters that are
// reached from here, less a majority.
func (p *peers) tolerates(voters []string) int {
	linked := map[string]bool{p.cfg.Name: true}
	for _, l := range p.links.Links() {
		linked[l.Name] = l.Up
	}
	reached := 0
	for _, name := range voters {
		up, known := linked[name]
		if !known { // one of the two is in no view
			_, up = p.links.Proved(name)
		}
		if up {
			reached++
		}
	}
	return reached - (len(voters)/2 + 1)
}

// linkObserver counts the links' events.
type linkObserver struct{ m *telemetry.Metrics }

var _ transport.Observer = linkObserver{}

func (o linkObserver) Batch(messages int) {
	if messages > 0 {
		o.m.BatchSize(messages)
	}
}

func (o linkObserver) Refused(cause transport.Cause) {
	if !cause.Expected() {
		o.m.Refused(string(cause))
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
