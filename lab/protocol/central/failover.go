package central

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// voters of a queue with failover: the first nodes. The queue is at one of them.
const voters = 5

// Failover makes a central queue that outlasts losses, with the means that kgate has: leases, and a majority of five voters. Every
// node renews its lease with the server, and the server its own with the voters, three times per lease. After the loss
// of the server the first living voter is the next one, if a majority lives: all nodes report to it what they have, and when the old
// server's lease is over it goes on. The slots of a lost node are free when that node's lease is over.
func Failover(lease time.Duration) protocol.Spec {
	return protocol.Spec{
		Name: "central-failover", About: "a queue at one node, with leases and failover",
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			if s.Nodes < voters {
				return nil, errors.New("central: there are five voters")
			}
			return protocol.Serial(h, s.Nodes, func(h protocol.Host) protocol.Protocol { return newFailover(h, s, lease) }), nil
		},
	}
}

type failover struct {
	host  protocol.Host
	lease time.Duration
	k     int
	nodes []peer
}

// peer is a node, as a client and as the server.
type peer struct {
	down   []bool
	server int
	own    protocol.Request // its client's; 0: none
	inside bool

	// Of a server.
	serving  bool
	from     time.Duration    // when it may begin
	clients  map[int]*standby // what it knows of the nodes
	withheld int
}

// standby is a node as the server knows it.
type standby struct {
	request protocol.Request
	inside  bool
}

// Messages. All are of a node to its server, but granted.
type (
	asks     struct{ request protocol.Request }
	granted  struct{ request protocol.Request }
	released struct{ request protocol.Request }
	report   struct{ standby }
	renew    struct{ reply bool }
)

// Timers.
const (
	timerRenew = iota
	timerServe // a server may begin
	timerFree  // the lease of a lost node is over
)

func newFailover(h protocol.Host, s protocol.Setup, lease time.Duration) *failover {
	f := &failover{host: h, lease: lease, k: s.K, nodes: make([]peer, s.Nodes)}
	for i := range f.nodes {
		f.nodes[i] = peer{down: make([]bool, s.Nodes), clients: make(map[int]*standby)}
		h.After(i, lease/3, sim.Timer{Kind: timerRenew})
	}
	f.nodes[0].serving = true
	return f
}

// tell sends a message, or takes it in at once if it is to the node itself.
func (f *failover) tell(from, to int, kind string, m any) {
	if from == to {
		f.Deliver(to, from, m)
		return
	}
	f.host.Send(from, to, kind, m)
}

// Acquire implements [protocol.Protocol].
func (f *failover) Acquire(i int, t protocol.Request) {
	f.host.Found(0)
	f.nodes[i].own = t
	f.tell(i, f.nodes[i].server, "request", asks{t})
}

// Release implements [protocol.Protocol].
func (f *failover) Release(i int, t protocol.Request) {
	f.nodes[i].own, f.nodes[i].inside = 0, false
	f.tell(i, f.nodes[i].server, "release", released{t})
}

// Deliver implements [sim.Handler].
func (f *failover) Deliver(to, from int, m any) {
	n := &f.nodes[to]
	switch m := m.(type) {
	case asks:
		n.clients[from] = &standby{request: m.request}
	case released:
		if c := n.clients[from]; c != nil && c.request == m.request {
			delete(n.clients, from)
		}
	case report:
		n.clients[from] = &m.standby
	case granted:
		if from == n.server && n.own == m.request { // else the server is lost, and has been replaced
			n.inside = true
			f.host.Grant(to, m.request)
		}
		return
	case renew:
		if !m.reply {
			f.host.Send(to, from, "renew", renew{true})
		}
		return
	}
	f.serve(to)
}

// serve gives the free slots to those who have waited longest.
func (f *failover) serve(i int) {
	n := &f.nodes[i]
	if !n.serving {
		return
	}
	var line []int
	busy := n.withheld
	for node, c := range n.clients {
		switch {
		case c.inside:
			busy++
		case c.request != 0 && !n.down[node]:
			line = append(line, node)
		}
	}
	slices.SortFunc(line, func(a, b int) int { return cmp.Compare(n.clients[a].request, n.clients[b].request) })
	for _, node := range line {
		if busy == f.k {
			return
		}
		busy++
		n.clients[node].inside = true
		f.tell(i, node, "grant", granted{n.clients[node].request})
	}
}

// Due implements [sim.Handler].
func (f *failover) Due(i int, t sim.Timer) {
	n := &f.nodes[i]
	switch t.Kind {
	case timerRenew:
		f.host.After(i, f.lease/3, t)
		if i != n.server {
			f.host.Send(i, n.server, "renew", renew{})
		}
		for v := range voters {
			if i == n.server && v != i && !n.down[v] {
				f.host.Send(i, v, "renew", renew{})
			}
		}
	case timerServe:
		f.begin(i)
	case timerFree:
		n.withheld--
		f.serve(i)
	}
}

// Down implements [protocol.Detecting].
func (f *failover) Down(i, lost int) {
	n := &f.nodes[i]
	n.down[lost] = true
	if c := n.clients[lost]; c != nil {
		delete(n.clients, lost)
		if n.serving && c.inside {
			n.withheld++
			f.host.After(i, f.lease, sim.Timer{Kind: timerFree})
		}
	}
	if lost == n.server {
		n.server = slices.Index(n.down, false)
		f.tell(i, n.server, "report", report{standby{n.own, n.inside}})
		if i == n.server {
			n.from = f.host.Now() + f.lease
			f.host.After(i, f.lease, sim.Timer{Kind: timerServe})
		}
	}
	f.begin(i)
}

// begin lets a new server begin, once all have reported and the old one's lease is over.
func (f *failover) begin(i int) {
	n := &f.nodes[i]
	alive := 0
	for v := range voters {
		if !n.down[v] {
			alive++
		}
	}
	if alive <= voters/2 {
		n.serving = false
		return
	}
	if n.server != i || n.serving || f.host.Now() < n.from {
		return
	}
	for node, down := range n.down {
		if !down && n.clients[node] == nil {
			f.host.After(i, f.lease/10, sim.Timer{Kind: timerServe}) // it has not heard of the loss yet
			return
		}
	}
	n.serving = true
	f.serve(i)
}

// Cancel implements [protocol.Protocol]; see [protocol.Serial].
func (*failover) Cancel(int, protocol.Request) {}

var (
	_ protocol.Protocol  = (*failover)(nil)
	_ protocol.Detecting = (*failover)(nil)
	_ sim.Handler        = (*failover)(nil)
)
