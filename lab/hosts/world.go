package hosts

import (
	"fmt"
	"io"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/sim"
)

// App is what a process runs beside its core: pools, for package cluster. It is told in the
// order in which things happen, and may call the host meanwhile.
type App interface {
	// Begin says that an incarnation begins: at the start of a process, and after a [Host.Rejoin].
	Begin(h *Host)
	// End says that a process has ended.
	End(h *Host)
	// Follow has a newer view taken over.
	Follow(h *Host, v *views.View)
	// Stand has a standing taken over.
	Stand(h *Host, s core.Standing)
	// Left says that the gateway is in the view no more, as it wanted, or cannot bring that about.
	Left(h *Host)
	// Receive has a message taken in that a link or [Host.Tell] has carried.
	Receive(h *Host, from int, m any)
	// Take has a letter taken in. It reports whether it was.
	Take(h *Host, from kmutex.Node, m any) bool
	// Lost says that a letter has not arrived, may not have arrived, or was not taken.
	Lost(h *Host, m any)
	// Due says that a timer has run out: of a host, or of the world if that is nil.
	Due(h *Host, t sim.Timer)
	// Kind names a message, and Long says that it does not fit into a short packet.
	Kind(m any) string
	Long(m any) bool
}

// Config is a world.
type Config struct {
	Seed  uint64
	Hosts int
	// Lease is what a new cluster agrees on.
	Lease   time.Duration
	Network sim.Network
	App     App
	// Trace gets a line for all that happens; nil: none.
	Trace io.Writer
}

// World is some hosts and the connections between them. One goroutine drives it.
type World struct {
	*sim.Engine
	cfg   Config
	hosts []*Host
	// bars are the ways on which no new connection can be opened, narrows those on which long
	// packets are lost, losses those on which half of the letters break their connection, and
	// late is until when nothing comes on a way that has become slower.
	bars, narrows, losses map[[2]int]bool
	late                  map[[2]int]time.Duration
	cuts                  int // how many ways are cut
	doubts                []*conn
	doubting              bool // a timer looks at them
	ids                   uint64
	judge                 judge
	errs                  []error
	// before and after are told of each message, next to its delivery.
	before, after func(to int, kind string)
}

// Timers of this package. Those of the App are below.
const (
	timerWake   = 255 - iota // the core wants to be called
	timerDisk                // a write has ended
	timerDial                // a dial has lasted as long as it may
	timerRefuse              // a dial was refused
	timerFailed              // letters have not left
	timerGossip              // of the world: discovery knows more
	timerDoubts              // of the world: connections may be dead
)

// New returns a world in which no process runs.
func New(cfg Config) *World {
	w := &World{
		cfg: cfg, bars: make(map[[2]int]bool), narrows: make(map[[2]int]bool), losses: make(map[[2]int]bool),
		late: make(map[[2]int]time.Duration), judge: newJudge(),
	}
	w.Engine = sim.New(cfg.Seed, cfg.Hosts, cfg.Network, w)
	for i := range cfg.Hosts {
		h := &Host{World: w, Index: i, Name: name(i), Write: time.Millisecond, Expect: cfg.Hosts, cur: make([]*conn, cfg.Hosts)}
		w.hosts = append(w.hosts, h)
		w.Kill(i)
	}
	return w
}

func name(host int) string { return fmt.Sprintf("gw-%d", host+1) }

// Host returns a host.
func (w *World) Host(i int) *Host { return w.hosts[i] }

// Err returns what has gone wrong first; nil: nothing.
func (w *World) Err() error {
	if len(w.errs) == 0 {
		return nil
	}
	return w.errs[0]
}

// Fail notes that something has gone wrong.
func (w *World) Fail(err error) {
	w.Tracef("", "FAILED: %v", err)
	w.errs = append(w.errs, err)
}

// Watch has functions called next to each delivery of a message, just before and just after it;
// they may be nil.
func (w *World) Watch(before, after func(to int, kind string)) { w.before, w.after = before, after }

// Tracef adds a line to the trace.
func (w *World) Tracef(who, format string, args ...any) {
	if w.cfg.Trace != nil {
		fmt.Fprintf(w.cfg.Trace, "%12.6f %-8s "+format+"\n", append([]any{w.Now().Seconds(), who}, args...)...)
	}
}

// Deliver implements [sim.Handler].
func (w *World) Deliver(to, _ int, m any) {
	h := w.hosts[to]
	if h.Core == nil {
		return
	}
	switch m := m.(type) {
	case *shake:
		h.shaken(m)
	case *packet:
		h.arrived(m)
	case *again:
		h.arrivedAgain(m.conn)
	case *reset:
		h.close(m.conn, false, "reset")
	}
}

// Due implements [sim.Handler].
func (w *World) Due(node int, t sim.Timer) {
	switch {
	case node == sim.World && t.Kind == timerGossip:
		w.spread()
	case node == sim.World && t.Kind == timerDoubts:
		w.look()
	case node == sim.World:
		w.cfg.App.Due(nil, t)
	default:
		w.hosts[node].due(t)
	}
}

var _ sim.Handler = (*World)(nil)
