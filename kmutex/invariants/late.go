package invariants

import (
	"fmt"

	"github.com/kgate/kgate/kmutex"
)

// This file holds the invariants about tokens that rest away from the baton (late
// binding).

// findable checks that the baton can find every token: each node where a token rests, or will rest
// when its request ends, is home, is the coordinator, or is named in a list or a message.
func findable(w *World) error {
	if w.Early {
		return nil
	}
	named := make(map[kmutex.Node]bool)
	name := func(ns ...kmutex.Node) {
		for _, n := range ns {
			named[n] = true
		}
	}
	for _, s := range w.Nodes {
		name(s.Home)
		name(s.Resting...)
		if s.Baton {
			name(s.Self)
		}
		for _, p := range s.Parked {
			name(p.Resting...)
		}
	}
	for _, e := range w.Flight {
		name(e.Message.Resting...)
		if e.Message.Kind == kmutex.KindBaton || e.Message.Kind == kmutex.KindRecall {
			name(e.To)
		}
	}
	for _, s := range w.Nodes {
		if named[s.Self] {
			continue
		}
		if s.Free.Len() > 0 {
			return fmt.Errorf("tokens %v rest at node %d, which nobody knows", s.Free, s.Self)
		}
		for _, g := range s.Running {
			if !s.Back.Has(g.Token) && !s.Withheld.Has(g.Token) {
				return fmt.Errorf("token %d will rest at node %d, which nobody knows", g.Token, s.Self)
			}
		}
	}
	return nil
}

// owed checks that the coordinator expects as many tokens of home as home owes, is being asked
// for, or has sent.
func owed(w *World) error {
	if w.Early {
		return nil
	}
	var holder, home kmutex.Node
	var number uint64
	due := 0
	for _, s := range w.Nodes {
		home = s.Home
		if s.Baton {
			holder, number, due = s.Self, s.Number, s.Due
		}
	}
	for _, e := range w.Flight {
		if m := e.Message; m.Kind == kmutex.KindBaton {
			holder, number, due = e.To, m.Number, int(m.Want)
		}
	}
	if holder == home {
		return nil // it takes what it has
	}
	owed := 0
	for _, s := range w.Nodes {
		if s.Self == home && s.Where.Number == number {
			owed += s.Wanted
		}
		for _, p := range s.Parked {
			if p.Number == number {
				owed += int(p.Want)
			}
		}
	}
	for _, e := range w.Flight {
		if m := e.Message; (m.Kind == kmutex.KindLocate || m.Kind == kmutex.KindTokens) && m.Number == number {
			owed += int(m.Want)
		}
	}
	if owed != due {
		return fmt.Errorf("the coordinator expects %d tokens of home, which owes %d", due, owed)
	}
	return nil
}
