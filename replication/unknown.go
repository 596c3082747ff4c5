package replication

import (
	"maps"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Unknown is what a gateway remembers of lost ones whose tickets nobody knows. The zero
// value is empty. Times are of the gateway's monotonic clock.
//
// # Which tokens such tickets may have
//
// Take the first epoch that is planned while nobody knows the tickets of a lost gateway. All
// tokens that are missing then are withheld. A token that is not missing is in use or free
// at a living gateway, so it is with none of these tickets; nor is one that an
// epoch gives out from then on. The lost gateway gets no token any more: it is in no view,
// and every gateway that has reported sends none. So the tickets have no other
// tokens than those that were withheld in that epoch, and in each later one. Tokens that
// are missing after another loss are not theirs.
type Unknown struct {
	since  map[kmutex.Node]time.Duration
	tokens map[kmutex.Node]kmutex.TokenSet // no entry: any
}

// Since notes that nobody has known a lost gateway's tickets since at, and returns
// since when that has been so.
func (u *Unknown) Since(n kmutex.Node, at time.Duration) time.Duration {
	if u.since == nil {
		u.since, u.tokens = make(map[kmutex.Node]time.Duration), make(map[kmutex.Node]kmutex.TokenSet)
	}
	if known, ok := u.since[n]; !ok || at < known {
		u.since[n] = at
	}
	return u.since[n]
}

// Begin takes in how an epoch begins.
func (u *Unknown) Begin(a *EpochAnswer, now time.Duration) {
	for _, n := range a.Unknown {
		u.Since(n, now-a.Ages[n])
		if a.Install.Tokens != nil { // else nobody knew which tokens there are
			u.claim(n, a.Install.Withheld)
		}
	}
}

// Learn takes in what another gateway has reported.
func (u *Unknown) Learn(r *EpochReport, now time.Duration) {
	for n, age := range r.Unknown {
		u.Since(n, now-age)
		if tokens, ok := r.Claimed[n]; ok {
			u.claim(n, tokens)
		}
	}
}

// claim notes that the tickets of a lost gateway have no other tokens than these.
func (u *Unknown) claim(n kmutex.Node, tokens kmutex.TokenSet) {
	have, ok := u.tokens[n]
	if !ok {
		have = tokens
	}
	have = have.Clone()
	have.KeepAll(tokens)
	u.tokens[n] = have
}

// Report puts what is known into r.
func (u *Unknown) Report(r *EpochReport, now time.Duration) {
	r.Unknown, r.Claimed = make(map[kmutex.Node]time.Duration, len(u.since)), maps.Clone(u.tokens)
	for n, since := range u.since {
		r.Unknown[n] = now - since
	}
}

// Forget drops what the view has forgotten.
func (u *Unknown) Forget(lost []Lost) {
	for n := range u.since {
		if !slices.ContainsFunc(lost, func(l Lost) bool { return l.Node == n }) {
			delete(u.since, n)
			delete(u.tokens, n)
		}
	}
}

// claimed returns the tokens that tickets of a lost gateway may have which nobody knows,
// as far as the reports tell; false: any that is missing.
func claimed(n kmutex.Node, reports []EpochReport) (kmutex.TokenSet, bool) {
	var u Unknown
	for i := range reports {
		u.Learn(&reports[i], 0)
	}
	tokens, ok := u.tokens[n]
	return tokens, ok
}
