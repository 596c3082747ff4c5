package replication

import (
	"errors"
	"fmt"

	"github.com/kgate/kgate/kmutex"
)

// ErrForming means that a report does not belong to the epoch that is formed.
var ErrForming = errors.New("replication: not a report of this epoch")

// EpochReport is what one gateway tells a pool's home when an epoch ends.
type EpochReport struct {
	kmutex.Report
}

// EpochAnswer is how that gateway begins the next one.
type EpochAnswer struct {
	Install *kmutex.Install
}

// Forming is the forming of one epoch of a pool, at its home: it waits for the
// reports of all members and then plans the epoch once. It is not safe for
// concurrent use.
type Forming struct {
	formation kmutex.Formation
	awaited   map[kmutex.Node]bool
	reports   []EpochReport
	answers   map[kmutex.Node]*EpochAnswer
}

// NewForming waits for the reports of members.
func NewForming(f kmutex.Formation, members []kmutex.Node) *Forming {
	forming := &Forming{formation: f, awaited: make(map[kmutex.Node]bool, len(members))}
	for _, m := range members {
		forming.awaited[m] = true
	}
	return forming
}

// Awaited returns how many reports are still to come.
func (f *Forming) Awaited() int { return len(f.awaited) }

// Planned tells whether there is a plan, of which some gateway may know.
func (f *Forming) Planned() bool { return f.answers != nil }

// Answer returns how a member begins the epoch; nil before all have reported, or
// if it is no member.
func (f *Forming) Answer(n kmutex.Node) *EpochAnswer { return f.answers[n] }

// Admit takes in a report. The last one awaited makes the plan. A report that
// has come before changes nothing: its sender has not got its answer.
func (f *Forming) Admit(r EpochReport) error {
	if r.Epoch != f.formation.Epoch {
		return fmt.Errorf("%w: it is for epoch %d, not %d", ErrForming, r.Epoch, f.formation.Epoch)
	}
	if !f.awaited[r.Node] {
		return nil
	}
	delete(f.awaited, r.Node)
	f.reports = append(f.reports, r)
	if len(f.awaited) > 0 {
		return nil
	}
	return f.plan()
}

func (f *Forming) plan() error {
	plain := make([]kmutex.Report, len(f.reports))
	for i := range f.reports {
		plain[i] = f.reports[i].Report
	}
	installs, err := kmutex.Reform(f.formation, plain)
	if err != nil {
		return err
	}
	f.answers = make(map[kmutex.Node]*EpochAnswer, len(installs))
	for i, in := range installs {
		f.answers[f.reports[i].Node] = &EpochAnswer{Install: in}
	}
	return nil
}
