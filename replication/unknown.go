package replication

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Unknown holds the lost gateways whose tickets no living gateway knows, and what is certain of each
// one's tickets. Every gateway remembers it, as it may be home next, and reports it when an epoch
// ends. Times are of the monotonic clock of the gateway that remembers; in a message they count from
// when it was sent.
//
// # Which tokens such tickets may have
//
// Take the first epoch that is planned while the tickets of a lost gateway are unknown. All tokens
// that are missing then are withheld. A token that is not missing is in use or free at a living
// gateway, so none of these tickets has it; nor does one get a token that an epoch gives out from
// then on. The lost gateway gets no token any more: it is in no view, and no gateway that has
// reported sends it one. So the tickets can only have tokens that were withheld in that epoch and in
// every later one. They have no token that goes missing with another loss, nor one that is on its
// way between living gateways when a later epoch is planned.
type Unknown map[kmutex.Node]Bound

// Bound is what is certain of tickets that nobody knows.
type Bound struct {
	Since   time.Duration // nobody has known them at least since then
	Bounded bool          // they have no tokens but Tokens; else they may have any that is missing
	Tokens  kmutex.TokenSet
}

// and returns what is certain if both b and c are.
func (b Bound) and(c Bound) Bound {
	since := min(b.Since, c.Since)
	switch {
	case !b.Bounded:
		b = c
	case c.Bounded:
		b.Tokens = b.Tokens.Clone()
		b.Tokens.KeepAll(c.Tokens)
	}
	b.Since = since
	return b
}

// Learn adds what a message says that has arrived at now.
func (u *Unknown) Learn(message Unknown, now time.Duration) {
	if *u == nil {
		*u = make(Unknown, len(message))
	}
	for n, b := range message {
		b.Since += now
		if have, ok := (*u)[n]; ok {
			b = b.and(have)
		}
		(*u)[n] = b
	}
}

// Message returns u for a message that is sent at now.
func (u Unknown) Message(now time.Duration) Unknown {
	var m Unknown
	m.Learn(u, -now)
	return m
}

// Validate returns what is wrong with u in a message.
func (u Unknown) Validate() error {
	for n, b := range u {
		if n == 0 || b.Since > 0 || !b.Tokens.Below(kmutex.MaxK) {
			return fmt.Errorf("%w: node %d is unknown since %v, with tokens %v", errInvalid, n, b.Since, b.Tokens)
		}
	}
	return nil
}

// Forget drops all gateways that are not in lost: the view has forgotten them.
func (u Unknown) Forget(lost []Lost) {
	maps.DeleteFunc(u, func(n kmutex.Node, _ Bound) bool {
		return !slices.ContainsFunc(lost, func(l Lost) bool { return l.Node == n })
	})
}
