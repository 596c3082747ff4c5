package quorum

import (
	"errors"
	"fmt"
	"time"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

var errMany = errors.New("quorum: mutual exclusion only: k must be 1")

// Specs returns the protocols with one resource of five replicas: Sigma, both
// hand-overs of End-to-End, and Non-End-to-End. Without a lease they send the fewest
// messages, and stop when a node is lost.
func Specs(lease time.Duration) []protocol.Spec {
	return []protocol.Spec{
		spec("sigma", "Sigma: a majority of replicas, each with a line", Options{Form: Sigma, Poll: true, Lease: lease}),
		spec("e2e", "End-to-End: the owner keeps the line and hands it over with the token", Options{Form: EndToEnd, Lease: lease}),
		spec("e2e-announce", "End-to-End, every new owner announced to all replicas", Options{Form: EndToEnd, Announce: true, Lease: lease}),
		spec("none2e", "Non-End-to-End: partial lines along the routes", Options{Form: NonEndToEnd, Lease: lease}),
	}
}

func spec(name, about string, opt Options) protocol.Spec {
	return protocol.Spec{
		Name: name, About: about,
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			if s.K != 1 {
				return nil, fmt.Errorf("%w, not %d", errMany, s.K)
			}
			opt := opt
			for i := s.Members; i < s.Nodes; i++ {
				opt.Absent = append(opt.Absent, i)
			}
			return protocol.Serial(h, s.Nodes, func(h protocol.Host) protocol.Protocol {
				return &single{Fleet: New(h, s, opt), leaving: make([]bool, s.Nodes)}
			}), nil
		},
	}
}

// single is a fleet with one resource as a protocol.
type single struct {
	*Fleet
	leaving []bool
}

// Acquire implements [protocol.Protocol].
func (s *single) Acquire(node int, t protocol.Request) { s.Fleet.Acquire(node, 0, t) }

// Release implements [protocol.Protocol].
func (s *single) Release(node int, _ protocol.Request) {
	s.Fleet.Release(node, 0)
	s.depart(node)
}

// Cancel implements [protocol.Protocol]; see [protocol.Serial].
func (*single) Cancel(int, protocol.Request) {}

// Down implements [protocol.Detecting]. The overlay is one for all: it repairs
// itself as soon as the first node knows.
func (s *single) Down(_, crashed int) {
	if s.overlay.there[crashed] {
		s.Lost(crashed)
	}
}

// Restart implements [protocol.Restarting].
func (s *single) Restart(node int) {
	s.Down(node, node)
	s.Join(node, node)
}

// Join implements [protocol.Moving].
func (s *single) Join(node, _ int) {
	s.leaving[node] = false
	s.Joined(node)
}

// Leave implements [protocol.Moving]: the node goes when its requests are over. It
// hands nothing over, as in the papers.
func (s *single) Leave(node int) {
	s.leaving[node] = true
	s.depart(node)
}

// In implements [protocol.Moving].
func (s *single) In(node int) bool { return s.overlay.there[node] }

func (s *single) depart(node int) {
	if s.leaving[node] && s.overlay.there[node] && len(s.nodes[node].clients) == 0 {
		s.Lost(node)
	}
}

var (
	_ protocol.Detecting  = (*single)(nil)
	_ protocol.Restarting = (*single)(nil)
	_ protocol.Moving     = (*single)(nil)
	_ sim.Handler         = (*single)(nil)
)
