package fairk

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
)

// View is what the gateways have agreed on, as far as one pool needs it. It never changes.
type View struct {
	// Index is larger in each newer view.
	Index uint64
	// Members in order of Node.
	Members []Member
	// Pool is what it says about the pool to a gateway.
	Pool func(self kmutex.Node) pool.View
}

// Member is one incarnation of a gateway.
type Member struct {
	Node kmutex.Node
	// Host is the simulated machine that it runs on.
	Host int
	// Boot tells the incarnations of a host apart.
	Boot string
}

// member returns the member with the given node.
func (v *View) member(n kmutex.Node) (Member, bool) {
	i, ok := slices.BinarySearchFunc(v.Members, n, func(m Member, n kmutex.Node) int { return cmp.Compare(m.Node, n) })
	if !ok {
		return Member{}, false
	}
	return v.Members[i], true
}

// named returns the member that runs on a host.
func (v *View) named(host int) (Member, bool) {
	i := slices.IndexFunc(v.Members, func(m Member) bool { return m.Host == host })
	if i < 0 {
		return Member{}, false
	}
	return v.Members[i], true
}

// owner returns the home of the pool that these members make.
func owner(members []Member) kmutex.Node {
	names := make([]string, len(members))
	nodes := make(map[string]kmutex.Node, len(members))
	for i, m := range members {
		names[i] = "gw-" + strconv.Itoa(m.Host+1)
		nodes[names[i]] = m.Node
	}
	return nodes[chordring.New(names).Owner("pool")]
}
