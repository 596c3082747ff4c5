package invariants

import (
	"errors"
	"fmt"

	"github.com/kgate/kgate/kmutex"
)

// This file holds the invariants about tokens and their serials.

// safety checks that at most k requests are in the critical section, including the requests that
// lost nodes may run; or no more than at the beginning of the epoch, if k was lowered below that.
// (That no request enters while more than k are in is a property of a history, not of a world.)
func safety(w *World) error {
	used := w.Withheld.Clone()
	for _, s := range w.Nodes {
		for _, g := range s.Running {
			used.Add(g.Token)
		}
	}
	for i, c := range w.classes() {
		if n := w.of(used, i).Len(); n > c.K+w.excess(i) {
			return fmt.Errorf("%d requests of class %d in the critical section, k=%d and %d too many at first", n, i, c.K, w.excess(i))
		}
	}
	return nil
}

// classes returns the pool's classes; one without a set if all tokens are alike.
func (w *World) classes() []kmutex.Class {
	if w.Classes == nil {
		return []kmutex.Class{{K: w.K}}
	}
	return w.Classes
}

// of returns the tokens of set that are in class i.
func (w *World) of(set kmutex.TokenSet, i int) kmutex.TokenSet {
	if w.Classes == nil {
		return set
	}
	set = set.Clone()
	set.KeepAll(w.Classes[i].Tokens)
	return set
}

// excess returns the epoch's excess in class i, see [Install.Excess]. Newcomers do not know it.
func (w *World) excess(i int) int {
	n := 0
	for _, s := range w.Nodes {
		if s.Excess != nil {
			n = max(n, int(s.Excess[i]))
		}
	}
	return n
}

// conservation checks that each token is in exactly one place. A withheld token may only be in
// use by a request, or nowhere.
func conservation(w *World) error {
	places := w.places()
	var errs []error
	for q, at := range places {
		switch {
		case len(at) > 1:
			errs = append(errs, fmt.Errorf("token %d is in %d places %v", q, len(at), at))
		case w.Tokens != nil && !w.Tokens.Has(q):
			errs = append(errs, fmt.Errorf("token %d does not exist and is %v", q, at))
		case w.Withheld.Has(q) && at[0].what != running:
			errs = append(errs, fmt.Errorf("token %d is withheld and %v", q, at))
		}
	}
	for _, q := range w.Tokens.Tokens() {
		if len(places[q]) == 0 && !w.Withheld.Has(q) {
			errs = append(errs, fmt.Errorf("token %d is nowhere", q))
		}
	}
	return errors.Join(errs...)
}

// place is where a token is.
type place struct {
	what string
	node kmutex.Node
}

const running = "running at"

// String formats p for error messages.
func (p place) String() string { return fmt.Sprintf("%s %d", p.what, p.node) }

// places tells for each token where it is.
func (w *World) places() map[kmutex.Token][]place {
	places := make(map[kmutex.Token][]place, w.K)
	at := func(q kmutex.Token, what string, node kmutex.Node) {
		places[q] = append(places[q], place{what, node})
	}
	for _, s := range w.Nodes {
		for _, q := range s.Kept.Tokens() {
			at(q, "kept at", s.Self)
		}
		for _, g := range s.Running {
			at(g.Token, running, s.Self)
		}
		for _, q := range s.Free.Tokens() {
			at(q, "free at", s.Self)
		}
		for _, q := range s.Stock.Tokens() {
			at(q, "in stock at", s.Self)
		}
		for _, q := range s.Offered.Tokens() {
			at(q, "offered at", s.Self)
		}
		for _, p := range s.Parked {
			for _, q := range p.Free.Tokens() {
				at(q, "parked at", s.Self)
			}
		}
		for _, seat := range s.Seats {
			if seat.Token != kmutex.NoToken && seat.Request == 0 {
				at(seat.Token, "idle at", s.Self)
			}
		}
	}
	for _, e := range w.Flight {
		if e.Message.Kind == kmutex.KindToken {
			at(e.Message.Token, "in flight to", e.To)
		}
		for _, q := range e.Message.Free.Tokens() {
			at(q, fmt.Sprintf("with the %v to", e.Message.Kind), e.To)
		}
	}
	return places
}

// serials checks that no two grants can get the same serial: each token has its own series of
// numbers. (That serials grow is a property of a history, not of a world.)
func serials(w *World) error {
	for _, s := range w.Nodes {
		for _, seat := range s.Seats {
			if err := w.checkLast(seat.Token, seat.Last); err != nil {
				return err
			}
		}
	}
	for _, e := range w.Flight {
		if e.Message.Kind == kmutex.KindToken {
			if err := w.checkLast(e.Message.Token, e.Message.Serial); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkLast checks the serial of the last grant of q in this epoch.
func (w *World) checkLast(q kmutex.Token, last uint64) error {
	if w.Early && last != 0 && (last-1)%kmutex.MaxK != uint64(q) {
		return fmt.Errorf("token %d has serial %d", q, last)
	}
	return nil
}
