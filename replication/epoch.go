package replication

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// errOtherEpoch means that a report does not belong to the epoch that is formed.
var errOtherEpoch = errors.New("replication: not a report of this epoch")

// EpochReport is what one gateway tells a pool's home when an epoch ends.
type EpochReport struct {
	kmutex.Report
	// Left is the gateway's knowledge of lost gateways' tickets; nil in pools without tickets.
	Left *Report `json:",omitempty"`
	// Bounds is what this gateway remembers of tickets that nobody knew.
	Bounds Unknown `json:",omitempty"`
}

// Validate returns what is wrong with the part of r about tickets. [kmutex.PlanEpoch] checks the
// rest.
func (r *EpochReport) Validate() error {
	if err := r.Bounds.Validate(); err != nil {
		return err
	}
	switch {
	case r.Left == nil:
		return nil
	case r.Left.Node != r.Node:
		return fmt.Errorf("%w: node %d reports what node %d knows", errInvalid, r.Node, r.Left.Node)
	}
	return r.Left.Validate()
}

// EpochAnswer is the home's answer to an [EpochReport]: how that gateway begins the next epoch.
type EpochAnswer struct {
	Install *kmutex.Install
	// HandOvers are the tickets that the gateway takes over from lost gateways. The Install has
	// them under the numbers given here.
	HandOvers []HandOver `json:",omitempty"`
	// Settled are lost gateways whose replicas are no longer needed.
	Settled []kmutex.Node `json:",omitempty"`
	// Bounds is what is certain of the tickets that no living gateway knows.
	Bounds Unknown `json:",omitempty"`
}

// Validate returns what is wrong with the part of a about tickets. The machine checks the install.
func (a *EpochAnswer) Validate() error {
	if a.Install == nil {
		return fmt.Errorf("%w: an answer without an install", errInvalid)
	}
	for i := range a.HandOvers {
		h := &a.HandOvers[i]
		if err := h.Validate(); err != nil {
			return err
		}
		if len(h.Tickets) != len(h.Records) {
			return fmt.Errorf("%w: %d records with %d numbers from node %d", errInvalid, len(h.Records), len(h.Tickets), h.Owner)
		}
	}
	return a.Bounds.Validate()
}

// EpochChange plans one epoch of a pool, at its home: it waits for the
// reports of all members and then plans the epoch once. It is not safe for
// concurrent use.
type EpochChange struct {
	change    kmutex.EpochChange
	lost      []Lost
	unknown   time.Duration // after which unknown tickets have expired
	handOvers Plan
	bounds    Unknown // first all that is reported, then those of the plan
	doubled   []kmutex.Token
	awaited   map[kmutex.Node]bool
	reports   []EpochReport
	answers   map[kmutex.Node]*EpochAnswer
}

// NewEpochChange returns an epoch change that waits for the reports of members. lost are the lost
// gateways that may have left tickets; none in pools without tickets. Tickets that no gateway has
// known for as long as unknown have expired.
func NewEpochChange(f kmutex.EpochChange, members []kmutex.Node, lost []Lost, unknown time.Duration) *EpochChange {
	e := &EpochChange{change: f, lost: lost, unknown: unknown, awaited: make(map[kmutex.Node]bool, len(members))}
	for _, m := range members {
		e.awaited[m] = true
	}
	return e
}

// Missing returns the members whose reports are still to come, in ascending order.
func (e *EpochChange) Missing() []kmutex.Node { return slices.Sorted(maps.Keys(e.awaited)) }

// Planned reports whether the epoch is planned, so that a gateway may have its answer.
func (e *EpochChange) Planned() bool { return e.answers != nil }

// Answer returns how member n begins the epoch; nil before all have reported, or if n is no
// member.
func (e *EpochChange) Answer(n kmutex.Node) *EpochAnswer { return e.answers[n] }

// Admit takes in a report. With the last missing report it plans the epoch. A second report of
// one member changes nothing: the answer to the first was lost.
func (e *EpochChange) Admit(r EpochReport) error {
	if r.Epoch != e.change.Epoch {
		return fmt.Errorf("%w: it is for epoch %d, not %d", errOtherEpoch, r.Epoch, e.change.Epoch)
	}
	if !e.awaited[r.Node] {
		return nil
	}
	delete(e.awaited, r.Node)
	e.reports = append(e.reports, r)
	e.bounds.Learn(r.Bounds, 0)
	if len(e.awaited) > 0 {
		return nil
	}
	return e.plan()
}

// Unknown returns the lost gateways whose tickets no living gateway knows. The tokens that the
// tickets may have are withheld until their slots have run out.
func (e *EpochChange) Unknown() Unknown { return e.bounds }

func (e *EpochChange) plan() error {
	change := e.change
	handOvers := e.planHandOvers()
	bounds := make(Unknown, len(e.handOvers.Unknown))
	for _, n := range e.handOvers.Unknown {
		b := e.bounds[n]
		bounds[n] = b
		change.Owed = change.Owed || !b.Bounded
		change.Claimed.AddAll(b.Tokens)
	}
	plain := make([]kmutex.Report, len(e.reports))
	for i := range e.reports {
		plain[i] = e.reports[i].Report
	}
	e.doubled = part(plain)
	for i := range plain {
		addHandOvers(&plain[i], handOvers[plain[i].Node])
	}
	installs, err := kmutex.PlanEpoch(change, plain)
	if err != nil {
		return err
	}
	if installs[0].Tokens != nil { // else the epoch's tokens are not known
		for n, b := range bounds {
			bounds[n] = b.and(Bound{Bounded: true, Tokens: installs[0].Withheld})
		}
	}
	e.bounds = bounds
	e.answers = make(map[kmutex.Node]*EpochAnswer, len(installs))
	for i, in := range installs {
		n := e.reports[i].Node
		e.answers[n] = &EpochAnswer{Install: in, HandOvers: handOvers[n], Settled: e.handOvers.Settled, Bounds: bounds}
	}
	return nil
}

// Doubled returns the tokens that two tickets ran with. Only a defect can do that.
func (e *EpochChange) Doubled() []kmutex.Token { return e.doubled }

// part gives the second ticket of a doubled token a number that no other token has. The ticket
// goes on, beyond k, and its token is not granted again. To refuse the epoch instead would stop the
// pool.
func part(reports []kmutex.Report) (doubled []kmutex.Token) {
	var running kmutex.TokenSet
	spare := kmutex.Token(kmutex.MaxK - 1)
	for i := range reports {
		r := &reports[i]
		r.Running = slices.Clone(r.Running)
		for j := range r.Running {
			g := &r.Running[j]
			if !isToken(g.Token) {
				continue // refused by the plan
			}
			if running.Has(g.Token) && spare >= 0 {
				doubled = append(doubled, g.Token)
				g.Token, spare = spare, spare-1
			}
			running.Add(g.Token)
		}
	}
	return doubled
}

// isToken reports whether q is a token, and neither [kmutex.NoToken] nor out of range.
func isToken(q kmutex.Token) bool { return q >= 0 && q < kmutex.MaxK }

// planHandOvers plans the hand-overs of lost gateways' tickets and returns them by successor.
func (e *EpochChange) planHandOvers() map[kmutex.Node][]HandOver {
	if len(e.lost) == 0 {
		return nil
	}
	var used kmutex.TokenSet
	var left []Report
	for _, r := range e.reports {
		for _, g := range r.Running {
			if isToken(g.Token) {
				used.Add(g.Token)
			}
		}
		if r.Installed+1 == e.change.Epoch { // else a later epoch may have given its free tokens away
			used.AddAll(r.Free)
		}
		if r.Left != nil {
			left = append(left, *r.Left)
		}
	}
	for i := range e.lost {
		e.lost[i].Over = e.bounds[e.lost[i].Node].Since <= -e.unknown
	}
	e.handOvers = PlanHandOvers(e.lost, used, left)
	bySuccessor := make(map[kmutex.Node][]HandOver)
	number := 0
	for _, h := range e.handOvers.HandOvers {
		for range h.Records {
			h.Tickets = append(h.Tickets, kmutex.AdoptedRequest(e.change.Epoch, number))
			number++
		}
		bySuccessor[h.Successor] = append(bySuccessor[h.Successor], h)
	}
	return bySuccessor
}

// addHandOvers adds the tickets that a successor takes over to its report.
func addHandOvers(r *kmutex.Report, handOvers []HandOver) {
	for _, h := range handOvers {
		r.Running, r.Waiting = slices.Clone(r.Running), slices.Clone(r.Waiting)
		for n, rec := range h.Records {
			if rec.State == admission.TicketGranted {
				r.Running = append(r.Running, kmutex.Grant{Request: h.Tickets[n], Token: rec.Token, Serial: rec.Fence.Serial})
			} else {
				r.Waiting = append(r.Waiting, kmutex.ReportedBatch{Stamp: rec.Stamp, Requests: h.Tickets[n : n+1]})
			}
		}
	}
}
