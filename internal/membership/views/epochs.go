package views

import (
	"fmt"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

func (s *state) pool(name string) (at int, err error) {
	at, known := findPool(s.Pools, name)
	if !known {
		return 0, fmt.Errorf("%w: there is no pool %q", ErrCommand, name)
	}
	return at, nil
}

// pools is a set of places in state.Pools.
type pools map[int]bool

func (s *state) poolSet(chosen func(*Pool) bool) pools {
	set := make(pools)
	for i := range s.Pools {
		if chosen(&s.Pools[i]) {
			set[i] = true
		}
	}
	return set
}

// beginEpochs moves the pools chosen on to their next epoch, with the home
// that the present members make.
func (s *state) beginEpochs(index uint64, chosen pools) {
	if len(chosen) == 0 {
		return
	}
	ring := ringOf(s.Members)
	nodes := make(map[string]kmutex.Node, len(s.Members))
	for _, m := range s.Members {
		nodes[m.Name] = m.Node
	}
	for i := range chosen {
		p := &s.Pools[i]
		p.Epoch++
		p.Began, p.Spread = index, false
		p.Home = nodes[ring.Owner(p.Name)]
	}
}

func (s *state) has(node kmutex.Node) bool {
	return slices.ContainsFunc(s.Members, func(m Member) bool { return m.Node == node })
}

func (p *Pool) owe(node kmutex.Node) {
	if at, owes := slices.BinarySearch(p.Owed, node); !owes {
		p.Owed = slices.Insert(p.Owed, at, node)
	}
}

func (p *Pool) forgive(node kmutex.Node) bool {
	at, owes := slices.BinarySearch(p.Owed, node)
	if owes {
		p.Owed = slices.Delete(p.Owed, at, at+1)
	}
	return owes
}
