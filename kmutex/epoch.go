package kmutex

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Install is how one node begins an epoch of a pool.
type Install struct {
	Epoch uint64
	// K is the number of tokens.
	K int
	// Home is the pool's home in this epoch.
	Home Node
	// Holder is the node at which the baton begins.
	Holder Node
	// Parent points toward the last in line; 0 at the last in line itself.
	Parent Node
	// Turns of this node in the line. Together they hold each ticket that the
	// node had reported as waiting, in ascending order. Only the last turn of
	// the last in line is open.
	Turns []Turn
	// Free tokens that begin here: with the baton (late binding), or idle in
	// the seats that [SeatOf] gives (early binding).
	Free TokenSet
	// Tails, at Holder under early binding, is the last seat of each token's
	// queue; the zero seat for a token that is not to be had in this epoch.
	Tails []Seat
}

// SeatOf returns the seat in which token q of node n begins an epoch, idle or
// running.
func SeatOf(n Node, q Token) Seat { return Seat{Node: n, Serial: uint64(q) + 1} }

// Report is what a frozen machine has that outlives the epoch.
type Report struct {
	Node Node
	// Epoch that is to come.
	Epoch uint64
	// Running tickets stay in the critical section.
	Running []Grant
	// Waiting tickets, oldest first, by the turns in which they stood. The
	// driver puts in the stamps.
	Waiting []ReportedTurn
}

// ReportedTurn is a run of waiting tickets.
type ReportedTurn struct {
	// Stamp orders the line of the new epoch; the driver sets it to the
	// arrival time of the first ticket.
	Stamp   int64
	Tickets []Ticket
}

// Genesis returns how node self enters a pool's epoch in which nobody runs or
// waits: the first epoch, or, as a newcomer, any later one. Home begins with
// the baton and all tokens.
func Genesis(epoch uint64, k int, home, self Node) *Install {
	in := &Install{Epoch: epoch, K: k, Home: home, Holder: home}
	if self != home {
		in.Parent = home
		return in
	}
	in.Free = NewTokenSet(k)
	in.Tails = make([]Seat, k)
	for q := range in.Tails {
		in.Tails[q] = SeatOf(home, Token(q))
	}
	return in
}

// Reform plans an epoch from the reports of all its nodes: every waiting turn
// in one line by stamp (then by node), a star around the last in line, the
// baton at the first. Tokens 0..k-1 that nobody runs and that are not in
// withheld begin free with the baton. The result has one Install per report,
// in the reports' order.
func Reform(epoch uint64, k int, home Node, reports []Report, withheld TokenSet) ([]*Install, error) {
	free := NewTokenSet(k)
	for _, q := range withheld.Tokens() {
		free.Remove(q)
	}
	tails := make([]Seat, k)
	installs := make([]*Install, len(reports))
	at := make(map[Node]*Install, len(reports))
	var line []linedTurn
	for i, r := range reports {
		if at[r.Node] != nil {
			return nil, fmt.Errorf("%w: two reports of node %d", ErrInstall, r.Node)
		}
		installs[i] = &Install{Epoch: epoch, K: k, Home: home}
		at[r.Node] = installs[i]
		for _, g := range r.Running {
			if int(g.Token) >= k || !free.Has(g.Token) {
				return nil, fmt.Errorf("%w: token %d of node %d runs elsewhere, is withheld or beyond k=%d", ErrInstall, g.Token, r.Node, k)
			}
			free.Remove(g.Token)
			tails[g.Token] = SeatOf(r.Node, g.Token)
		}
		for _, t := range r.Waiting {
			line = append(line, linedTurn{node: r.Node, ReportedTurn: t})
		}
	}
	if at[home] == nil {
		return nil, fmt.Errorf("%w: no report of home %d", ErrInstall, home)
	}
	first, last := formLine(line, home, at)
	for _, q := range free.Tokens() {
		tails[q] = SeatOf(first, q)
	}
	at[first].Free, at[first].Tails = free, tails
	for n, in := range at {
		in.Holder = first
		if n != last {
			in.Parent = last
		}
	}
	return installs, nil
}

type linedTurn struct {
	node Node
	ReportedTurn
}

// formLine sorts the turns into one line, puts them into the installs, and
// returns the first and the last node of it; home when nobody waits.
func formLine(line []linedTurn, home Node, at map[Node]*Install) (first, last Node) {
	if len(line) == 0 {
		return home, home
	}
	slices.SortStableFunc(line, func(a, b linedTurn) int {
		return cmp.Or(cmp.Compare(a.Stamp, b.Stamp), cmp.Compare(a.node, b.node))
	})
	var before Node
	for _, t := range line {
		in := at[t.node]
		if t.node == before { // neighbours of one node are one turn
			turn := &in.Turns[len(in.Turns)-1]
			turn.Tickets = append(turn.Tickets, t.Tickets...)
			continue
		}
		if before != 0 {
			turns := at[before].Turns
			turns[len(turns)-1].Next = Place{Node: t.node}
		}
		in.Turns = append(in.Turns, Turn{Tickets: slices.Clone(t.Tickets)})
		before = t.node
	}
	return line[0].node, before
}

func (m *Machine) freeze(epoch uint64) error {
	if epoch <= m.epoch {
		return fmt.Errorf("%w: freeze for epoch %d in epoch %d", ErrInstall, epoch, m.epoch)
	}
	m.fx.Report = m.report(epoch)
	m.fx.Note(Trace{Kind: TraceFrozen, Number: epoch})
	// What the dead epoch still had in flight for us is void.
	m.aside = slices.DeleteFunc(m.aside, func(e Event) bool {
		return e.Kind == EventReceive && e.Message.Epoch < epoch
	})
	m.epoch, m.frozen, m.baton = epoch, true, false
	return nil
}

func (m *Machine) report(epoch uint64) *Report {
	r := &Report{Node: m.self, Epoch: epoch, Running: slices.Clone(m.running)}
	add := func(ts []Ticket) {
		if len(ts) > 0 {
			r.Waiting = append(r.Waiting, ReportedTurn{Tickets: slices.Clone(ts)})
		}
	}
	add(m.binding.Waiting(nil))
	for _, turn := range m.turns {
		add(turn.Tickets)
	}
	add(m.pending)
	return r
}

// install begins an epoch, then takes in what was kept aside for it.
func (m *Machine) install(in *Install) error {
	if err := m.checkInstall(in); err != nil {
		return fmt.Errorf("%w: epoch %d: %w", ErrInstall, in.Epoch, err)
	}
	if err := m.binding.Install(m.self, in, m.running); err != nil {
		return fmt.Errorf("%w: epoch %d: %w", ErrInstall, in.Epoch, err)
	}
	m.epoch, m.frozen, m.home, m.k = in.Epoch, false, in.Home, in.K
	m.fx.epoch = in.Epoch
	m.parent = in.Parent
	m.turns = nil
	for _, turn := range in.Turns {
		m.turns = append(m.turns, Turn{Tickets: slices.Clone(turn.Tickets), Next: turn.Next})
	}
	m.pending, m.asked = nil, false
	m.baton, m.number = in.Holder == m.self, 0
	m.fx.Note(Trace{Kind: TraceInstalled, Number: in.Epoch})
	m.settle()
	return m.replay()
}

func (m *Machine) checkInstall(in *Install) error {
	holds := in.Holder == m.self
	switch {
	case in.Epoch == 0 || in.Epoch < m.epoch || !m.frozen && in.Epoch == m.epoch:
		return fmt.Errorf("this node is in epoch %d", m.epoch)
	case !m.frozen:
		return errors.New("the epoch before it is not frozen")
	case in.K < 1 || in.Home == 0 || in.Holder == 0:
		return errors.New("k, home or holder is missing")
	case in.Parent == m.self:
		return errors.New("a parent that is the node itself")
	case in.Parent == 0 && len(in.Turns) == 0 && !holds:
		return errors.New("last in line with neither turn nor baton")
	}
	var waiting []Ticket
	for i, turn := range in.Turns {
		if open := turn.Next.IsZero(); open != (in.Parent == 0 && i == len(in.Turns)-1) {
			return errors.New("only the last turn of the last in line is open")
		}
		waiting = append(waiting, turn.Tickets...)
	}
	var have []Ticket
	for _, t := range m.report(in.Epoch).Waiting {
		have = append(have, t.Tickets...)
	}
	if !slices.Equal(waiting, have) {
		return errors.New("other waiting tickets than this node has")
	}
	return nil
}

// replay takes in what was kept aside, in order. Messages of epochs still to
// come stay aside.
func (m *Machine) replay() error {
	aside := m.aside
	m.aside = nil
	var errs []error
	for _, e := range aside {
		if e.Kind == EventReceive {
			errs = append(errs, m.receive(e))
		} else {
			errs = append(errs, m.local(e))
		}
	}
	return errors.Join(errs...)
}
