package kmutex

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

func (m *Machine) freeze(epoch uint64, k int) error {
	if epoch <= m.epoch || k < 1 || k > MaxK {
		return fmt.Errorf("%w: freeze for epoch %d with k=%d in epoch %d", ErrInstall, epoch, k, m.epoch)
	}
	if m.frozen {
		m.maxK = max(m.maxK, m.coming)
	}
	m.coming = k
	m.fx.Report = m.report(epoch)
	m.fx.Note(Trace{Kind: TraceFrozen, Number: epoch})
	// Messages of the epoch that has ended are void.
	m.deferred = slices.DeleteFunc(m.deferred, func(e Event) bool {
		return e.Kind == EventReceive && e.Message.Epoch < epoch
	})
	m.epoch, m.frozen, m.baton = epoch, true, false
	return nil
}

// report returns the machine's report for epoch. A frozen machine does not change, so a second
// report says the same.
func (m *Machine) report(epoch uint64) *Report {
	r := &Report{
		Node: m.self, Epoch: epoch, Installed: m.installed, Tokens: m.tokens.Clone(), MaxK: m.maxK,
		Running: slices.Clone(m.running),
	}
	r.Free, _ = m.binding.FreeHere()
	r.Free.AddAll(m.offered)
	add := func(ts []Request) {
		if len(ts) > 0 {
			r.Waiting = append(r.Waiting, ReportedBatch{Requests: slices.Clone(ts)})
		}
	}
	add(m.binding.Waiting(nil))
	for _, batch := range m.batches {
		add(batch.Requests)
	}
	add(m.pending)
	return r
}

// install begins an epoch, then replays the deferred events.
func (m *Machine) install(in *Install) error {
	if err := m.checkInstall(in); err != nil {
		return fmt.Errorf("%w: epoch %d: %w", ErrInstall, in.Epoch, err)
	}
	if err := m.binding.Install(m.self, in); err != nil {
		return fmt.Errorf("%w: epoch %d: %w", ErrInstall, in.Epoch, err)
	}
	m.epoch, m.frozen, m.home, m.k = in.Epoch, false, in.Home, in.K
	m.fx.epoch = in.Epoch
	m.fx.Note(Trace{Kind: TraceInstalled, Number: in.Epoch})
	m.installed, m.coming, m.maxK = in.Epoch, 0, 0
	m.tokens, m.withheld = in.Tokens.Clone(), in.Withheld.Clone()
	m.classes, m.excess = cloneSets(in.Classes), slices.Clone(in.Excess)
	before := m.adopted
	m.parent = in.Parent
	m.batches, m.numbered, m.offered, m.retrying = nil, 0, nil, false
	for _, batch := range in.Batches {
		m.numbered = batch.Number
		m.batches = append(m.batches, Batch{Number: batch.Number, Requests: slices.Clone(batch.Requests), Next: batch.Next})
		for _, t := range batch.Requests {
			m.adopt(t, before)
		}
	}
	if len(m.batches) > 0 {
		m.retryLater()
	}
	m.pending, m.asked = nil, false
	m.resume(in.Running, before)
	m.baton, m.number = in.Holder == m.self, 0
	m.settle()
	return m.replay()
}

// resume takes over the running requests of a new epoch.
func (m *Machine) resume(running []Grant, before Request) {
	for _, g := range running {
		m.adopt(g.Request, before)
	}
	m.running = slices.Clone(running)
	slices.SortFunc(m.running, func(a, b Grant) int { return cmp.Compare(a.Request, b.Request) })
}

// adopt notes t if it is new, that is, larger than before.
func (m *Machine) adopt(t, before Request) {
	if t > before {
		m.adopted = max(m.adopted, t)
		m.fx.Note(Trace{Kind: TraceAdopted, Request: t})
	}
}

func (m *Machine) checkInstall(in *Install) error {
	holds := in.Holder == m.self
	switch {
	case !m.frozen:
		return fmt.Errorf("this node is in epoch %d", m.epoch)
	case in.Epoch == 0 || m.epoch != 0 && in.Epoch != m.epoch:
		return fmt.Errorf("this node is frozen for epoch %d", m.epoch)
	case in.K < 1 || in.K > MaxK || in.Home == 0 || in.Holder == 0:
		return errors.New("k, home or holder is missing or impossible")
	case !in.grantable(in.Free) || !in.Tokens.Below(MaxK) || !in.Withheld.Below(MaxK):
		return errors.New("tokens that do not exist")
	case in.Excess != nil && len(in.Excess) != max(1, len(in.Classes)):
		return errors.New("not one excess for each class")
	case in.Parent == m.self:
		return errors.New("a parent that is the node itself")
	case in.Parent == 0 && len(in.Batches) == 0 && !holds:
		return errors.New("last in line with neither batch nor baton")
	}
	var waiting []Request
	var numbered uint64
	for i, batch := range in.Batches {
		if batch.Number <= numbered {
			return errors.New("batches that are not numbered in order")
		}
		numbered = batch.Number
		if open := batch.Next.IsZero(); open != (in.Parent == 0 && i == len(in.Batches)-1) {
			return errors.New("only the last batch of the last in line is open")
		}
		if batch.Next.Node == m.self {
			return errors.New("a batch behind itself")
		}
		waiting = append(waiting, batch.Requests...)
	}
	if err := m.checkRunning(in); err != nil {
		return err
	}
	return m.checkRequests(in, waiting)
}

// checkRunning compares the running requests and their tokens with the machine's.
func (m *Machine) checkRunning(in *Install) error {
	var used TokenSet
	for _, g := range in.Running {
		if g.Token < 0 || g.Token >= MaxK || used.Has(g.Token) || in.Free.Has(g.Token) {
			return fmt.Errorf("request %d runs with token %d, which is impossible", g.Request, g.Token)
		}
		used.Add(g.Token)
		i, mine := m.findRunning(g.Request)
		if mine && g != m.running[i] {
			return fmt.Errorf("request %d has another token or serial than here", g.Request)
		}
	}
	return nil
}

// checkRequests compares the requests of an install with the machine's. Only adopted requests
// may be new.
func (m *Machine) checkRequests(in *Install, waiting []Request) error {
	running := make([]Request, 0, len(in.Running))
	for _, g := range in.Running {
		running = append(running, g.Request)
	}
	have := make([]Request, 0, len(m.running))
	for _, g := range m.running {
		have = append(have, g.Request)
	}
	if !m.same(running, have) {
		return errors.New("other requests in the critical section than this node has")
	}
	have = have[:0]
	for _, t := range m.report(in.Epoch).Waiting {
		have = append(have, t.Requests...)
	}
	if !m.same(waiting, have) {
		return errors.New("other waiting requests than this node has")
	}
	all := slices.Sorted(slices.Values(append(running, waiting...)))
	if len(slices.Compact(all)) != len(running)+len(waiting) {
		return errors.New("a request twice")
	}
	return nil
}

// same reports whether ts holds the requests have, in any order, and beside them only newly
// adopted requests.
func (m *Machine) same(ts, have []Request) bool {
	known := slices.DeleteFunc(slices.Clone(ts), func(t Request) bool { return t > m.adopted })
	return slices.Equal(slices.Sorted(slices.Values(known)), slices.Sorted(slices.Values(have)))
}

// replay takes in the deferred events, in order, then the requests that have arrived. Messages of
// epochs still to come stay deferred.
func (m *Machine) replay() error {
	deferred := m.deferred
	m.deferred = nil
	var errs []error
	for _, e := range deferred {
		if e.Kind == EventReceive {
			errs = append(errs, m.receive(&e))
		} else {
			errs = append(errs, m.local(&e))
		}
	}
	if len(m.arrived) > 0 {
		m.pending = append(m.pending, m.arrived...)
		m.arrived = nil
		m.settle()
	}
	return errors.Join(errs...)
}
