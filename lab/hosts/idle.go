package hosts

import (
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/sim"
)

// Idle is an App that does nothing but come back.
type Idle struct {
	// Do is called for timers of the world.
	Do func(arg uint64)
}

var _ App = (*Idle)(nil)

// Begin implements App.
func (*Idle) Begin(*Host) {}

// End implements App.
func (*Idle) End(*Host) {}

// Follow implements App.
func (*Idle) Follow(*Host, *views.View) {}

// Stand implements App.
func (*Idle) Stand(h *Host, s core.Standing) {
	if s.Void {
		h.After(time.Duration(h.Rand().Int64N(int64(20*time.Millisecond))), sim.Timer{})
	}
}

// Left implements App.
func (*Idle) Left(h *Host) { h.Left = true; h.Kill() }

// Receive implements App.
func (*Idle) Receive(*Host, int, any) {}

// Take implements App.
func (*Idle) Take(*Host, kmutex.Node, any) bool { return true }

// Lost implements App.
func (*Idle) Lost(*Host, any) {}

// Due implements App.
func (a *Idle) Due(h *Host, t sim.Timer) {
	if h == nil {
		a.Do(t.Arg)
		return
	}
	h.Step(core.Rejoin{})
}

// Kind implements App.
func (*Idle) Kind(any) string { return "" }

// Long implements App.
func (*Idle) Long(any) bool { return false }
