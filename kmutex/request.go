package kmutex

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// This file holds what happens within an epoch: to this node's requests, and with the
// messages of others.

// local handles an event of this node's own requests or timers.
func (m *Machine) local(e *Event) error {
	switch e.Kind {
	case EventAcquire:
		m.pending = append(m.pending, e.Request)
	case EventCancel:
		if err := m.cancel(e.Request); err != nil {
			return err
		}
	case EventRelease:
		if !m.release(e.Request) {
			return fmt.Errorf("%w: release %d, which is not in the critical section", errRequest, e.Request)
		}
	case EventReturn:
		if !m.release(e.Request) {
			return fmt.Errorf("%w: return %d, which is not in the critical section", errRequest, e.Request)
		}
		m.waitAgain(e.Request)
	case EventAskDue:
		m.asked = false
	case EventRetryDue:
		m.retry()
	default:
		return fmt.Errorf("%w: %d is not local", errEvent, e.Kind)
	}
	m.settle()
	return nil
}

// bar sets the tokens that this node cannot use.
func (m *Machine) bar(barred TokenSet) error {
	if !barred.Below(MaxK) {
		return errors.New("kmutex: barred tokens that do not exist")
	}
	if m.binding.Bar(barred) && !m.frozen {
		m.settle()
	}
	return nil
}

func (m *Machine) receive(e *Event) error {
	switch {
	case e.Message.Epoch < m.epoch:
		m.fx.Note(Trace{Kind: TraceStale, Node: e.From})
		return nil
	case e.Message.Epoch > m.epoch || m.frozen:
		if len(m.deferred) >= maxDeferred {
			return fmt.Errorf("%w: %v", errOverflow, *e)
		}
		m.deferred = append(m.deferred, *e)
		return nil
	}
	var err error
	switch e.Message.Kind {
	case KindRequest:
		err = m.onRequest(e.Message)
	case KindBaton:
		err = m.onBaton(e.From, e.Message)
	case KindOffer:
		err = m.onOffer(e.Message)
	case KindSkip:
		err = m.onSkip(e.From, e.Message)
	case KindChild, KindToken, KindLocate, KindRecall, KindTokens:
		err = m.binding.Receive(e.Message, &m.fx)
	default:
		err = fmt.Errorf("unknown kind %d", e.Message.Kind)
	}
	if err != nil {
		return fmt.Errorf("%w: from node %d: %v: %w", errProtocol, e.From, *e.Message, err)
	}
	m.settle()
	return nil
}

// settle brings the machine to rest after an event.
func (m *Machine) settle() {
	m.sweep()
	m.enterIdle()
	m.useOffered()
	m.serve()
	m.pump()
	m.offer()
	m.sweep()
	m.record()
}

// record adds this step's grants to running.
func (m *Machine) record() {
	for ; m.recorded < len(m.fx.Grants); m.recorded++ {
		g := m.fx.Grants[m.recorded]
		i, _ := m.findRunning(g.Request)
		m.running = slices.Insert(m.running, i, g)
	}
}

func (m *Machine) findRunning(t Request) (int, bool) {
	return slices.BinarySearchFunc(m.running, t, func(g Grant, t Request) int {
		return cmp.Compare(g.Request, t)
	})
}

// release ends t's critical section, if it is in it.
func (m *Machine) release(t Request) bool {
	i, ok := m.findRunning(t)
	if !ok {
		return false
	}
	q := m.running[i].Token
	m.running = slices.Delete(m.running, i, i+1)
	m.fx.Note(Trace{Kind: TraceReleased, Request: t, Token: q})
	if m.withheld.Has(q) {
		// An adopted slot's: the lost node may still use the token.
		m.fx.Note(Trace{Kind: TraceWithheld, Token: q})
		return true
	}
	m.binding.Free(q, &m.fx)
	return true
}

// cancel ends t, waiting or running.
func (m *Machine) cancel(t Request) error {
	if _, running := m.findRunning(t); running {
		m.fx.revoke(t)
		m.recorded = len(m.fx.Grants)
		m.release(t)
		return nil
	}
	if !m.binding.Cancel(t) && !m.leaveLine(t) {
		return fmt.Errorf("%w: cancel %d, which neither waits nor is in the critical section", errRequest, t)
	}
	m.fx.Note(Trace{Kind: TraceCancelled, Request: t})
	return nil
}

// leaveLine takes a waiting request out of its batch or out of pending. A batch
// that it empties keeps its place until it leaves; the baton passes it by.
func (m *Machine) leaveLine(t Request) bool {
	for i := range m.batches {
		if remove(&m.batches[i].Requests, t) {
			return true
		}
	}
	return remove(&m.pending, t)
}

// remove takes t out of ts. Deletion moves the requests behind t anyway, so the search before it
// costs no more.
func remove(ts *[]Request, t Request) bool {
	i := slices.Index(*ts, t)
	if i >= 0 {
		*ts = slices.Delete(*ts, i, i+1)
	}
	return i >= 0
}
