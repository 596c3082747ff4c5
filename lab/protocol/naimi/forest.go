package naimi

import (
	"errors"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Spec makes the algorithm.
func Spec() protocol.Spec {
	return protocol.Spec{
		Name: "naimi-trehel", About: "one token, a tree of last requesters with path reversal",
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			if s.K != 1 {
				return nil, errors.New("naimi: there is one token, k = 1")
			}
			return Trees(h, s, false), nil
		},
	}
}

// Trees makes k trees over the same nodes, each with a token of its own; a request
// goes into a random one. Caching: a node that waits keeps the requests that it
// gets, and the token carries the line (Chang, Singhal, Liu).
func Trees(h protocol.Host, s protocol.Setup, caching bool) protocol.Protocol {
	return protocol.Serial(h, s.Nodes, func(h protocol.Host) protocol.Protocol { return newForest(h, s, caching) })
}

const none = -1

// forest is k trees over the same nodes.
type forest struct {
	host    protocol.Host
	caching bool
	// trees[q][i] is node i in the tree of token q.
	trees [][]node
	// tree and request of each node's request; request 0: it has none.
	at []request
}

type node struct {
	parent int // none: the last in line
	token  bool
	// behind are the nodes that come after this one: at most one with A.
	behind []int
}

type request struct {
	request protocol.Request
	tree    int
	entered bool
}

func newForest(h protocol.Host, s protocol.Setup, caching bool) *forest {
	f := &forest{host: h, caching: caching, trees: make([][]node, s.K), at: make([]request, s.Nodes)}
	for q := range f.trees {
		root := q % s.Nodes
		f.trees[q] = make([]node, s.Nodes)
		for i := range f.trees[q] {
			f.trees[q][i].parent = root
		}
		f.trees[q][root] = node{parent: none, token: true}
	}
	return f
}

// wanted says that a node asks for the token of tree q.
type wanted struct{ q, origin, hops int }

// token carries token q, and with B the line.
type token struct {
	q    int
	line []int
}

func (f *forest) Acquire(i int, t protocol.Request) {
	q := f.host.Rand().IntN(len(f.trees))
	f.at[i] = request{request: t, tree: q}
	n := &f.trees[q][i]
	if n.token {
		f.enter(i)
		return
	}
	f.host.Send(i, n.parent, "request", wanted{q: q, origin: i})
	n.parent = none
}

func (f *forest) enter(i int) {
	f.at[i].entered = true
	f.host.Grant(i, f.at[i].request)
}

func (f *forest) Release(i int, _ protocol.Request) {
	q := f.at[i].tree
	f.at[i] = request{}
	f.handOver(q, i)
}

// handOver sends the token of tree q from node i to the first behind it.
func (f *forest) handOver(q, i int) {
	n := &f.trees[q][i]
	if len(n.behind) == 0 {
		return
	}
	next, line := n.behind[0], n.behind[1:]
	n.token, n.behind = false, nil
	if f.caching {
		n.parent = next
		if len(line) > 0 {
			n.parent = line[len(line)-1]
		}
	}
	f.host.Send(i, next, "token", token{q: q, line: line})
}

func (f *forest) Deliver(to, _ int, m any) {
	switch m := m.(type) {
	case wanted:
		f.wanted(to, m)
	case token:
		n := &f.trees[m.q][to]
		n.token = true
		n.behind = append(m.line, n.behind...)
		f.enter(to)
	}
}

func (f *forest) wanted(i int, m wanted) {
	n := &f.trees[m.q][i]
	waits := f.at[i].request != 0 && f.at[i].tree == m.q
	keep := n.parent == none // the last in line
	if f.caching {
		keep = n.token || waits
	}
	if !keep {
		f.host.Send(i, n.parent, "request", wanted{m.q, m.origin, m.hops + 1})
		n.parent = m.origin
		return
	}
	f.host.Found(m.hops)
	n.behind = append(n.behind, m.origin)
	if !f.caching {
		n.parent = m.origin
	}
	if n.token && !waits {
		f.handOver(m.q, i)
	}
}

func (*forest) Cancel(int, protocol.Request) {} // see [protocol.Serial]
func (*forest) Due(int, sim.Timer)           {}
