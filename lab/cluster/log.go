package cluster

import (
	"slices"
	"strconv"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol/fairk"
)

// agreed is what the log amounts to, as in package membership.
type agreed struct {
	fairk.View
	lost []lost
}

type lost struct {
	node   kmutex.Node
	host   int
	boot   uint64
	leased bool
	left   bool // in order, and not suspended
}

// commit appends one command to the log: change tells what it does and reports
// whether it did anything. A new view goes out with the leader's next heartbeat.
func (c *Cluster) commit(change func(a *agreed) bool) bool {
	a := agreed{View: c.log.View, lost: slices.Clone(c.log.lost)}
	a.Members, a.Owed, a.Lost = slices.Clone(a.Members), slices.Clone(a.Owed), slices.Clone(a.Lost)
	a.Index++
	if !change(&a) {
		return false
	}
	c.log = a
	view := a.View
	c.newest = &view
	c.ks = append(c.ks, make([]int, int(view.Epoch)+1-len(c.ks))...)
	c.ks[view.Epoch] = view.K
	c.tracef("", "view %d: members %v, k=%d, epoch %d, home %d, owed %v", view.Index, view.Members, view.K, view.Epoch, view.Home, view.Owed)
	return true
}

// beginEpoch moves the pool on to its next epoch.
func (a *agreed) beginEpoch() {
	a.Epoch++
	a.Began = a.Index
	a.Home = fairk.Owner(a.Members)
}

// join lets an incarnation in. One of the same host goes out as if suspended; the
// incarnation that the newcomer says it has voided owes nothing any more.
func (a *agreed) join(host int, boot uint64, voided kmutex.Node) bool {
	old, known := a.Named(host)
	if known && old.Boot == boot {
		return false
	}
	a.Members = append(a.Members, fairk.Member{Node: kmutex.Node(a.Index), Host: host, Boot: boot})
	moved := a.Home == 0
	if known {
		a.lose(old.Node, true)
		moved = true
	}
	a.findHeirs()
	if voided != 0 && a.unlease(voided) {
		moved = true
	}
	if moved {
		a.beginEpoch()
	}
	return true
}

// lose moves a member to the lost.
func (a *agreed) lose(n kmutex.Node, leased bool) {
	m, _ := a.Member(n)
	a.Members = slices.DeleteFunc(a.Members, func(m fairk.Member) bool { return m.Node == n })
	a.lost = append(a.lost, lost{n, m.Host, m.Boot, leased, !leased})
	if leased {
		a.Owed = append(a.Owed, n)
		slices.Sort(a.Owed)
	}
	if a.Tickets {
		a.Lost = append(a.Lost, fairk.Lost{Node: n, Host: m.Host, At: a.Index})
		a.findHeirs()
	}
}

// findHeirs gives lost members heirs as package membership does: that of a lost heir
// answers for what it had.
func (a *agreed) findHeirs() {
	for i := range a.Lost {
		l := &a.Lost[i]
		if _, in := a.Member(l.Heir); in || len(a.Members) == 0 {
			continue
		}
		last := l.Host
		for _, heir := range a.Lost {
			if heir.Node == l.Heir {
				last = heir.Host
			}
		}
		l.Heir = append(fairk.Successors(a.Members, last, 1), a.Members[0].Node)[0]
	}
}

// unlease notes that a lost member has nothing in flight any more.
func (a *agreed) unlease(n kmutex.Node) bool {
	for i := range a.lost {
		if a.lost[i].node == n && a.lost[i].leased {
			a.lost[i].leased = false
			a.Owed = slices.DeleteFunc(a.Owed, func(o kmutex.Node) bool { return o == n })
			return true
		}
	}
	return false
}

func (a *agreed) isLost(n kmutex.Node) bool {
	return slices.ContainsFunc(a.lost, func(l lost) bool { return l.node == n })
}

// leased are the lost members whose leases may still run.
func (a *agreed) leased() []kmutex.Node {
	var nodes []kmutex.Node
	for _, l := range a.lost {
		if l.leased {
			nodes = append(nodes, l.node)
		}
	}
	return nodes
}

// forRules returns what the leader's rules need of the log.
func (a *agreed) forRules() leader.View {
	v := leader.View{Number: a.Index, Leased: a.leased(), Members: make([]leader.Member, len(a.Members))}
	for i, m := range a.Members {
		v.Members[i] = leader.Member{
			Node: m.Node, Name: strconv.Itoa(m.Host), Boot: strconv.FormatUint(m.Boot, 10), Home: m.Node == a.Home,
		}
	}
	return v
}
