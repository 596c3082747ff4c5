package static

import (
	"fmt"
	"slices"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Spec makes a static split: k/n tokens at each node, one more at the first
// k mod n. It cannot do with fewer tokens than nodes.
func Spec() protocol.Spec {
	return protocol.Spec{
		Name: "static", About: "each gateway has k/n tokens and a line of its own",
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			if s.K < s.Nodes {
				return nil, fmt.Errorf("static: %d tokens cannot be split over %d nodes", s.K, s.Nodes)
			}
			p := &split{host: h, nodes: make([]node, s.Nodes)}
			for i := range p.nodes {
				p.nodes[i].free = s.K / s.Nodes
				if i < s.K%s.Nodes {
					p.nodes[i].free++
				}
			}
			return p, nil
		},
	}
}

type split struct {
	host  protocol.Host
	nodes []node
}

type node struct {
	free    int
	waiting []protocol.Request
}

func (p *split) Acquire(i int, t protocol.Request) {
	p.nodes[i].waiting = append(p.nodes[i].waiting, t)
	p.serve(i)
}

func (p *split) Release(i int, _ protocol.Request) {
	p.nodes[i].free++
	p.serve(i)
}

func (p *split) serve(i int) {
	n := &p.nodes[i]
	for n.free > 0 && len(n.waiting) > 0 {
		t := n.waiting[0]
		n.waiting = n.waiting[1:]
		n.free--
		p.host.Grant(i, t)
	}
}

func (p *split) Cancel(i int, t protocol.Request) {
	n := &p.nodes[i]
	at := slices.Index(n.waiting, t)
	n.waiting = slices.Delete(n.waiting, at, at+1)
}

func (*split) Deliver(int, int, any) {}
func (*split) Due(int, sim.Timer)    {}
