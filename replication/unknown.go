package replication

import (
	"maps"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Unknown is what a gateway remembers of lost gateways whose tickets no living gateway knows. The
// zero value is empty. Times are of the gateway's monotonic clock.
//
// # Which tokens such tickets may have
//
// Take the first epoch that is planned while the tickets of a lost gateway are unknown. All tokens
// that are missing then are withheld. A token that is not missing is in use or free at a living
// gateway, so none of these tickets has it; nor does one get a token that an epoch gives out from
// then on. The lost gateway gets no token any more: it is in no view, and no gateway that has
// reported sends it one. So the tickets can only have tokens that were withheld in that epoch and in
// every later one. They have no token that goes missing with another loss.
type Unknown struct {
	since  map[kmutex.Node]time.Duration
	tokens map[kmutex.Node]kmutex.TokenSet // that the tickets may have; no entry: any
}

// Since notes that the tickets of lost gateway n have been unknown since at, and returns the earliest
// time noted.
func (u *Unknown) Since(n kmutex.Node, at time.Duration) time.Duration {
	if u.since == nil {
		u.since, u.tokens = make(map[kmutex.Node]time.Duration), make(map[kmutex.Node]kmutex.TokenSet)
	}
	if known, ok := u.since[n]; !ok || at < known {
		u.since[n] = at
	}
	return u.since[n]
}

// Begin takes in the answer with which this gateway begins an epoch.
func (u *Unknown) Begin(a *EpochAnswer, now time.Duration) {
	for _, n := range a.Unknown {
		u.Since(n, now-a.Ages[n])
		if a.Install.Tokens != nil { // else the epoch's tokens are not known
			u.claim(n, a.Install.Withheld)
		}
	}
}

// Learn takes in another gateway's report.
func (u *Unknown) Learn(r *EpochReport, now time.Duration) {
	for n, age := range r.Unknown {
		u.Since(n, now-age)
		if tokens, ok := r.Claimed[n]; ok {
			u.claim(n, tokens)
		}
	}
}

// claim notes that the tickets of lost gateway n have no tokens but these.
func (u *Unknown) claim(n kmutex.Node, tokens kmutex.TokenSet) {
	have, ok := u.tokens[n]
	if !ok {
		have = tokens
	}
	have = have.Clone()
	have.KeepAll(tokens)
	u.tokens[n] = have
}

// Report fills in r.Unknown and r.Claimed.
func (u *Unknown) Report(r *EpochReport, now time.Duration) {
	r.Unknown, r.Claimed = make(map[kmutex.Node]time.Duration, len(u.since)), maps.Clone(u.tokens)
	for n, since := range u.since {
		r.Unknown[n] = now - since
	}
}

// Forget drops all gateways that are not in lost: the view has forgotten them.
func (u *Unknown) Forget(lost []Lost) {
	for n := range u.since {
		if !slices.ContainsFunc(lost, func(l Lost) bool { return l.Node == n }) {
			delete(u.since, n)
			delete(u.tokens, n)
		}
	}
}

// claimed returns the tokens that the unknown tickets of lost gateway n may have, according to the
// reports; false: they may have any missing token.
func claimed(n kmutex.Node, reports []EpochReport) (kmutex.TokenSet, bool) {
	var u Unknown
	for i := range reports {
		u.Learn(&reports[i], 0)
	}
	tokens, ok := u.tokens[n]
	return tokens, ok
}
