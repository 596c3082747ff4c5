package token

import (
	"math"
	"time"

	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/sim"
)

// Check is what section 3.2 of the paper is about: a process that makes a token
// checks all others, one after the other, whether they live.
type Check struct {
	// Others is N, and the first Failed of them, Nf, do not answer.
	Others, Failed int
	// Message is Tm and Handle is Tp: the mean time of a message, and the time to
	// handle one. Timeout is To.
	Message, Handle, Timeout time.Duration
	// Signal is Ts, from the process to its detector or back. Known is p, the share
	// of the failed processes that the detector has on its list.
	Signal time.Duration
	Known  float64
}

// Response is equation 3.2, Te.
func (c Check) Response() time.Duration { return 2*c.Message + c.Handle }

// WithTimeouts is equation 3.3, as long as the check takes without a detector.
func (c Check) WithTimeouts() time.Duration {
	return time.Duration(c.Failed)*c.Timeout + time.Duration(c.Others-c.Failed)*c.Response()
}

// WithDetector is equation 3.4.
func (c Check) WithDetector() time.Duration {
	known := c.Known * float64(c.Failed)
	return time.Duration(2*c.Others)*c.Signal + time.Duration(known*float64(c.Handle)) +
		time.Duration((float64(c.Failed)-known)*float64(c.Timeout)) + time.Duration(c.Others-c.Failed)*c.Response()
}

// Gain is equation 3.5, without its last term, which does not follow from 3.3 and
// 3.4: what the detector saves.
func (c Check) Gain() time.Duration {
	return time.Duration(c.Known*float64(c.Failed)*float64(c.Timeout-c.Handle)) - time.Duration(2*c.Others)*c.Signal
}

// Even is the Ts at which the detector saves nothing: p Nf (To - Tp) = 2 N Ts.
func (c Check) Even() time.Duration {
	return time.Duration(c.Known * float64(c.Failed) * float64(c.Timeout-c.Handle) / float64(2*c.Others))
}

// Way to check.
type Way int

const (
	// InTurn asks one process after the other, with time-outs.
	InTurn Way = iota
	// Detector asks the detector about one process after the other.
	Detector
	// AtOnce asks all processes at the same time, with time-outs.
	AtOnce
)

// Simulate carries the check out with messages whose times vary: half of Tm and an
// exponential part.
func (c Check) Simulate(way Way, seed uint64) time.Duration {
	s := &checking{Check: c, way: way}
	nodes := c.Others + 1 // the last one checks
	s.Engine = sim.New(seed, nodes, network.Jitter{Base: c.Message / 2, Extra: c.Message - c.Message/2}, s)
	for i := range c.Failed {
		s.Kill(i)
	}
	if way == AtOnce {
		for i := range c.Others {
			s.probe(i)
		}
	} else {
		s.next()
	}
	for s.Step(math.MaxInt64) && s.checked < c.Others {
	}
	return s.Now()
}

// checking is a check that goes on.
type checking struct {
	*sim.Engine
	Check
	way     Way
	at      int // the process that is being checked
	checked int
	heard   map[int]bool
}

// Timers: of the checking process, except for handled.
const (
	timerTimeout  = iota // a process has not answered [process]
	timerHandled         // a process answers
	timerSignal          // the detector has the question [process]
	timerListed          // the detector has found the process on its list
	timerAnswered        // the answer of the detector is here
)

type probe struct{}

func (s *checking) self() int { return s.Others }

// next checks the next process.
func (s *checking) next() {
	if s.at == s.Others {
		return
	}
	if s.way == Detector {
		s.After(s.self(), s.Signal, sim.Timer{Kind: timerSignal, Arg: uint64(s.at)})
		return
	}
	s.probe(s.at)
}

func (s *checking) probe(i int) {
	s.Send(s.self(), i, probe{})
	s.After(s.self(), s.Timeout, sim.Timer{Kind: timerTimeout, Arg: uint64(i)})
}

// Deliver implements [sim.Handler]: a question at a process, or its answer.
func (s *checking) Deliver(to, from int, _ any) {
	if to != s.self() {
		s.After(to, s.Handle, sim.Timer{Kind: timerHandled})
		return
	}
	s.known(from)
}

// Due implements [sim.Handler].
func (s *checking) Due(node int, t sim.Timer) {
	i := int(t.Arg)
	switch t.Kind {
	case timerTimeout:
		s.known(i)
	case timerHandled:
		s.Send(node, s.self(), probe{})
	case timerSignal:
		if float64(i) < s.Known*float64(s.Failed) {
			s.After(node, s.Handle, sim.Timer{Kind: timerListed, Arg: t.Arg})
			return
		}
		s.probe(i) // by the detector
	case timerListed:
		s.known(i)
	case timerAnswered:
		s.done()
	}
}

// known is called when it is clear whether process i lives.
func (s *checking) known(i int) {
	if s.heard == nil {
		s.heard = make(map[int]bool)
	}
	if s.heard[i] {
		return
	}
	s.heard[i] = true
	if s.way == Detector {
		s.After(s.self(), s.Signal, sim.Timer{Kind: timerAnswered})
		return
	}
	s.done()
}

func (s *checking) done() {
	s.checked++
	if s.way != AtOnce {
		s.at++
		s.next()
	}
}
