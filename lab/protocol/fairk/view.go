package fairk

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// View is what the gateways have agreed on: that of package membership, with one
// pool. It never changes.
type View struct {
	// Index of the last log entry that it follows from: nodes with a larger
	// number are not known in it.
	Index uint64
	// Members in order of Node.
	Members []Member
	// The pool.
	K            int
	Epoch, Began uint64
	Home         kmutex.Node
	// Owed are the lost members whose tokens are withheld in this epoch.
	Owed []kmutex.Node
	// Tickets: the pool has some. Lost members then may have left tickets.
	Tickets bool
	Lost    []Lost
	// Replicas is how many successors have copies of a member's tickets.
	Replicas int
}

// MaxTTL is the longest time to live of a ticket.
const MaxTTL = 4 * time.Second

// Lost is a member that is gone, and who takes over its tickets; 0: nobody.
type Lost struct {
	Node, Heir kmutex.Node
	Host       int
	At         uint64 // the index of the log entry that took it out
}

// Member is one incarnation of a gateway.
type Member struct {
	Node kmutex.Node
	// Host is the simulated machine that it runs on.
	Host int
	// Boot tells the incarnations of a host apart.
	Boot uint64
}

// Member returns the member with the given node.
func (v *View) Member(n kmutex.Node) (Member, bool) {
	i, ok := slices.BinarySearchFunc(v.Members, n, func(m Member, n kmutex.Node) int { return cmp.Compare(m.Node, n) })
	if !ok {
		return Member{}, false
	}
	return v.Members[i], true
}

// Named returns the member that runs on a host.
func (v *View) Named(host int) (Member, bool) {
	i := slices.IndexFunc(v.Members, func(m Member) bool { return m.Host == host })
	if i < 0 {
		return Member{}, false
	}
	return v.Members[i], true
}

// Owner returns the home of the pool that these members make.
func Owner(members []Member) kmutex.Node {
	names := make([]string, len(members))
	nodes := make(map[string]kmutex.Node, len(members))
	for i, m := range members {
		names[i] = name(m.Host)
		nodes[names[i]] = m.Node
	}
	return nodes[chordring.New(names).Owner("pool")]
}

// Heir returns the member that answers for the tickets of a node.
func (v *View) Heir(n kmutex.Node) (Member, bool) {
	for _, l := range v.Lost {
		if l.Node == n {
			n = l.Heir
			break
		}
	}
	return v.Member(n)
}

// Successors returns the members after a host on the ring.
func Successors(members []Member, host, n int) []kmutex.Node {
	names := make([]string, len(members))
	nodes := make(map[string]kmutex.Node, len(members))
	for i, m := range members {
		names[i] = name(m.Host)
		nodes[names[i]] = m.Node
	}
	var out []kmutex.Node
	for _, s := range chordring.New(names).Successors(name(host), n) {
		out = append(out, nodes[s])
	}
	return out
}

func name(host int) string { return "gw-" + strconv.Itoa(host+1) }

// stays are the times in the views of all gateways.
func (v *View) stays() []replication.Stay {
	var stays []replication.Stay
	for _, m := range v.Members {
		stays = append(stays, replication.Stay{Name: name(m.Host), Node: m.Node})
	}
	for _, l := range v.Lost {
		stays = append(stays, replication.Stay{Name: name(l.Host), Node: l.Node, Out: l.At})
	}
	return stays
}

// stay returns one gateway's; false: the view does not know it.
func stay(n kmutex.Node, stays []replication.Stay) (replication.Stay, bool) {
	at := slices.IndexFunc(stays, func(s replication.Stay) bool { return s.Node == n })
	if at < 0 {
		return replication.Stay{}, false
	}
	return stays[at], true
}

// witnessed reports whether a member must have a replica of whatever a lost one told.
func (v *View) witnessed(me Member, lost kmutex.Node) bool {
	stays := v.stays()
	s, known := stay(lost, stays)
	return known && v.Replicas > 0 && replication.Witnessed(replication.Stay{Name: name(me.Host), Node: me.Node}, s, 0, stays)
}

// missed reports whether an owner may have told something while a member's host had none.
func (v *View) missed(me Member, owner kmutex.Node, kept func(kmutex.Node) bool) bool {
	stays := v.stays()
	s, known := stay(owner, stays)
	return !known || replication.Missed(replication.Stay{Name: name(me.Host), Node: me.Node}, s, stays, kept)
}

// pool is what package pool wants to know of the view.
func (v *View) pool(self kmutex.Node, wait time.Duration) pool.View {
	p := pool.View{
		Newest: kmutex.Node(v.Index), K: v.K, Epoch: v.Epoch, Began: kmutex.Node(v.Began), Home: v.Home, Owed: len(v.Owed) > 0,
	}
	for _, m := range v.Members {
		p.Members = append(p.Members, m.Node)
	}
	if p.Tickets, p.Wait = v.Tickets, wait; v.Tickets {
		me, _ := v.Member(self)
		p.Successors = Successors(v.Members, me.Host, v.Replicas)
		for _, l := range v.Lost {
			p.Gone = append(p.Gone, l.Node)
			p.Lost = append(p.Lost, replication.Lost{Node: l.Node, Successor: l.Heir})
		}
		p.Witnessed = func(lost kmutex.Node) bool { return v.witnessed(me, lost) }
		p.Missed = func(owner kmutex.Node, kept func(kmutex.Node) bool) bool { return v.missed(me, owner, kept) }
		p.MaxTTL = MaxTTL
	}
	return p
}
