package kmutex

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// This file plans an epoch. Home does this; no machine takes part.

// Report is the part of a frozen machine's state that outlives the epoch.
type Report struct {
	Node Node
	// Epoch that is to come.
	Epoch uint64
	// Installed is the last epoch that began at this node; 0: none.
	Installed uint64
	// Tokens are all tokens of that epoch, at any node; nil: not known here, because the node
	// joined in the middle of it.
	Tokens TokenSet
	// MaxK is the largest k of the epochs between Installed and the coming one
	// that this node has heard of. If one of them began somewhere, tokens below
	// MaxK may have been granted there.
	MaxK int
	// Running requests stay in the critical section. The driver adds a lost node's slots that
	// this node adopts, each with an [AdoptedRequest] of the coming epoch and its token.
	Running []Grant
	// Free tokens are at this node and not in use.
	Free TokenSet
	// Unplanned, from the driver, are epochs after Installed that this node, as home, has not
	// planned and never will.
	Unplanned []uint64
	// Waiting requests, oldest first, by the batches in which they stood. The
	// driver puts in the stamps, and adopted requests.
	Waiting []ReportedBatch
}

// ReportedBatch is a run of waiting requests.
type ReportedBatch struct {
	// Stamp orders the line of the new epoch; the driver sets it to the
	// arrival time of the first request.
	Stamp    int64
	Requests []Request
}

// PlanEpoch plans an epoch from the reports of all its nodes: every waiting batch
// in one line by stamp (then by node), a star around the last in line, the
// baton at the first with the free tokens. The result has one Install per
// report, in the reports' order. An adopted slot whose token another request or node has is
// dropped.
//
// Every node that reports is frozen, so a token that no request has is free. But if
// a lost node is owed tokens, a token is free only if a node reports it as free;
// otherwise it is withheld. Once nothing is owed, only claimed tokens are withheld: a lost node can
// have left no others to its users. Running and withheld tokens count against K, and the rest of K
// is free. If they are more than K, after k was lowered, none is free, and the excess stays where
// tokens are collected when they come back ([Install.Excess]). So a lower k ends no request's
// critical section, and no request enters it before fewer than K are in it.
//
// An adopted slot keeps its token. While a lost node is owed tokens, that token
// stays withheld: the lost node may not know that the slot has moved, may end it,
// and may use the token again. So it is not used again when the adopted slot ends.
// The same holds while the token is claimed.
//
// # Why no two nodes have one token
//
// It can be that only some nodes install an epoch before the next one replaces it. A node that
// has not installed it runs the requests that it reported and no others. An epoch gives out as free
// only tokens that no node reported as running and that are not withheld, and no token ever changes
// its number.
//
// # Why a lost node's tokens are all withheld
//
// Take any report that knows its epoch's tokens. A token that a lost node still uses is among
// these, or a later epoch gave it out as free: then its number is below that epoch's k. The
// reporting node was frozen for that epoch, or the epoch could not have been planned, so the number
// is below MaxK. And no report that counts has the token as free: a report's Free counts only if no
// epoch can have begun since without its node, as that epoch may have given the tokens to other
// nodes; and a frozen node lets no token go.
func PlanEpoch(f EpochChange, reports []Report) ([]*Install, error) {
	p, err := newPlan(f, reports)
	if err != nil {
		return nil, err
	}
	p.withhold()
	p.adopt()
	free, excess := p.vacant()
	first, last := p.planLine()
	p.place(free, excess, first, last)
	return p.installs, nil
}

// plan is an epoch that is being planned.
type plan struct {
	EpochChange
	reports  []Report
	installs []*Install
	at       map[Node]*Install
	// running tokens have a request in the new epoch.
	running TokenSet
	// tokens are all that may exist; nil: not known.
	tokens TokenSet
	// idle tokens are at a living node and not in use.
	idle     TokenSet
	withheld TokenSet
}

func newPlan(f EpochChange, reports []Report) (*plan, error) {
	p := &plan{EpochChange: f, reports: reports, at: make(map[Node]*Install, len(reports))}
	if err := f.check(); err != nil {
		return nil, err
	}
	if !f.Claimed.Below(MaxK) {
		return nil, fmt.Errorf("%w: tokens of %d or more are claimed", ErrInstall, MaxK)
	}
	for _, r := range reports {
		if p.at[r.Node] != nil {
			return nil, fmt.Errorf("%w: two reports of node %d", ErrInstall, r.Node)
		}
		if !r.Tokens.Below(MaxK) || !r.Free.Below(MaxK) || r.MaxK < 0 || r.MaxK > MaxK {
			return nil, fmt.Errorf("%w: node %d reports tokens of %d or more", ErrInstall, r.Node, MaxK)
		}
		in := &Install{Epoch: f.Epoch, K: f.K, Classes: f.sets(), Home: f.Home}
		for _, g := range r.Running {
			switch {
			case g.Request >= AdoptedRequest(f.Epoch, 0): // see adopt
			case g.Token < 0 || g.Token >= MaxK || p.running.Has(g.Token):
				return nil, fmt.Errorf("%w: token %d of node %d runs elsewhere too, or does not exist", ErrInstall, g.Token, r.Node)
			default:
				p.running.Add(g.Token)
			}
			in.Running = append(in.Running, g)
		}
		p.installs = append(p.installs, in)
		p.at[r.Node] = in
	}
	if p.at[f.Home] == nil {
		return nil, fmt.Errorf("%w: no report of home %d", ErrInstall, f.Home)
	}
	return p, nil
}

// doubt reports whether lost nodes, or users whom only lost nodes knew, may have tokens.
func (p *plan) doubt() bool { return p.Owed || p.Claimed.Len() > 0 }

// withhold finds the tokens that a lost node or its users may still use.
func (p *plan) withhold() {
	p.survey()
	switch {
	case !p.doubt():
		return
	case p.tokens == nil:
		// No living node knows the tokens: grant none until the lost nodes' tokens are back.
		p.withheld, p.idle = p.known(p.K), nil
	case p.Owed:
		p.withheld = p.tokens.Clone()
	}
	p.withheld.AddAll(p.Claimed)
	p.withheld.RemoveAll(p.running)
	p.withheld.RemoveAll(p.idle)
}

// survey finds out which tokens may exist and which of them are idle.
func (p *plan) survey() {
	unplanned := make(map[uint64]bool)
	for _, r := range p.reports {
		for _, epoch := range r.Unplanned {
			unplanned[epoch] = true
		}
	}
	for _, r := range p.reports {
		next := r.Installed + 1
		for next < p.Epoch && unplanned[next] {
			next++
		}
		current := next >= p.Epoch // no epoch can have begun since
		if current {
			p.idle.AddAll(r.Free)
		}
		if current && r.Installed == 0 { // no epoch has begun anywhere, so there is no token
			p.tokens = TokenSet{}
		}
		if r.Tokens == nil {
			continue
		}
		p.tokens.AddAll(r.Tokens)
		if !current {
			p.tokens.AddAll(p.known(r.MaxK))
		}
	}
}

// adopt takes over slots of lost nodes with their tokens. If a living node has a slot's token, the
// slot was released before its node was lost, and is dropped.
func (p *plan) adopt() {
	for _, in := range p.installs {
		in.Running = slices.DeleteFunc(in.Running, func(g Grant) bool {
			return g.Request >= AdoptedRequest(p.Epoch, 0) && !p.take(g.Token)
		})
		for _, g := range in.Running {
			if g.Request >= FirstAdopted && (p.Owed || p.Claimed.Has(g.Token)) {
				p.withheld.Add(g.Token)
			}
		}
	}
}

// take lets an adopted slot have q, if no living node has it.
func (p *plan) take(q Token) bool {
	if q < 0 || q >= MaxK || p.running.Has(q) || p.idle.Has(q) {
		return false
	}
	p.running.Add(q)
	return true
}

// used returns the tokens that run or are withheld.
func (p *plan) used() TokenSet {
	used := p.running.Clone()
	used.AddAll(p.withheld)
	return used
}

// vacant returns the free tokens: as many as there is room for, the lowest that
// neither run nor are withheld; and the excess. Both are counted class by class.
func (p *plan) vacant() (vacant []Token, excess []uint32) {
	used := p.used()
	if p.Classes == nil {
		room := p.K - used.Len()
		for q := Token(0); len(vacant) < room; q++ {
			if !used.Has(q) {
				vacant = append(vacant, q)
			}
		}
		return vacant, tooMany(excess, 1, 0, -room)
	}
	for i, c := range p.Classes {
		free, taken := c.Tokens.Clone(), used.Clone()
		free.RemoveAll(used)
		taken.KeepAll(c.Tokens)
		room := c.K - taken.Len()
		if room > 0 {
			vacant = append(vacant, free.Tokens()[:room]...)
		}
		excess = tooMany(excess, len(p.Classes), i, -room)
	}
	return vacant, excess
}

// tooMany notes that class i of so many has n tokens too many, if n is positive.
func tooMany(excess []uint32, classes, i, n int) []uint32 {
	if n <= 0 {
		return excess
	}
	if excess == nil {
		excess = make([]uint32, classes)
	}
	excess[i] = uint32(n)
	return excess
}

// place writes the plan into the installs.
func (p *plan) place(vacant []Token, excess []uint32, first, last Node) {
	var free, tokens TokenSet
	for _, q := range vacant {
		free.Add(q)
	}
	if !p.doubt() || p.tokens != nil {
		for _, set := range []TokenSet{p.running, p.withheld, free} {
			tokens.AddAll(set)
		}
	}
	for n, in := range p.at {
		in.Tokens, in.Withheld, in.Holder, in.Excess = tokens, p.withheld, first, excess
		if n != last {
			in.Parent = last
		}
	}
	if p.Classes == nil {
		p.at[first].Tails = p.tails(free, first, sum(excess))
	}
	if p.Spread && excess == nil && len(p.at[first].Batches) == 0 {
		p.spread(vacant)
		return
	}
	p.at[first].Free = free
}

// spread places each free token at the node that has the fewest tokens.
func (p *plan) spread(vacant []Token) {
	nodes := slices.Sorted(maps.Keys(p.at))
	has := make(map[Node]int, len(nodes))
	for n, in := range p.at {
		in.Resting = nodes
		has[n] = len(in.Running)
	}
	for _, q := range vacant {
		n := slices.MinFunc(nodes, func(a, b Node) int { return cmp.Compare(has[a], has[b]) })
		p.at[n].Free.Add(q)
		has[n]++
	}
}

// sum returns how many tokens are too many in all classes together.
func sum(excess []uint32) int {
	n := 0
	for _, e := range excess {
		n += int(e)
	}
	return n
}

// tails begins the tokens' queues, for early binding. A free token's queue begins at the first in
// line, and a running token's at its node; if tokens run beyond k, all queues begin at the first in
// line, and only the lowest tokens have one, see [Install.Excess].
func (p *plan) tails(free TokenSet, first Node, excess int) []Seat {
	var queues TokenSet
	at := make(map[Token]Node)
	for _, q := range free.Tokens() {
		queues.Add(q)
		at[q] = first
	}
	for n, in := range p.at {
		for _, g := range in.Running {
			if p.withheld.Has(g.Token) {
				continue
			}
			queues.Add(g.Token)
			if at[g.Token] = n; excess > 0 {
				at[g.Token] = first
			}
		}
	}
	begin := queues.Tokens()
	begin = begin[:max(0, len(begin)-excess)]
	tails := make([]Seat, p.K)
	for _, q := range begin {
		for len(tails) <= int(q) {
			tails = append(tails, Seat{})
		}
		tails[q] = SeatOf(at[q], q)
	}
	return tails
}

// planLine sorts the batches into one line, puts them into the installs, and
// returns the first and the last node of it; home when nobody waits.
func (p *plan) planLine() (first, last Node) {
	type linedBatch struct {
		node Node
		ReportedBatch
	}
	var line []linedBatch
	for _, r := range p.reports {
		for _, t := range r.Waiting {
			if len(t.Requests) > 0 {
				line = append(line, linedBatch{r.Node, t})
			}
		}
	}
	if len(line) == 0 {
		return p.Home, p.Home
	}
	slices.SortStableFunc(line, func(a, b linedBatch) int {
		return cmp.Or(cmp.Compare(a.Stamp, b.Stamp), cmp.Compare(a.node, b.node))
	})
	var before Node
	for _, t := range line {
		in := p.at[t.node]
		if t.node == before { // neighbours of one node are one batch
			batch := &in.Batches[len(in.Batches)-1]
			batch.Requests = append(batch.Requests, t.Requests...)
			continue
		}
		number := uint64(len(in.Batches) + 1)
		if before != 0 {
			batches := p.at[before].Batches
			batches[len(batches)-1].Next = Place{Node: t.node, Batch: number}
		}
		in.Batches = append(in.Batches, Batch{Number: number, Requests: slices.Clone(t.Requests)})
		before = t.node
	}
	return line[0].node, before
}
