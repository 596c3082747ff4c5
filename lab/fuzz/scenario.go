package fuzz

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Mode says what a run is to show.
type Mode string

// The modes.
const (
	Safety   Mode = "safety"
	Liveness Mode = "liveness"
)

// Scenario is a run to be. It follows from its seed, but for what Shrink has
// taken away.
type Scenario struct {
	Seed    uint64
	Mode    Mode
	Hosts   int
	Members int // of the hosts, at the beginning
	K       int
	// Upstreams share K, each with a k of its own; 0: there is one.
	Upstreams int
	Early     bool
	Tickets   bool // some are taken
	Memory    bool // processes keep nothing
	Write     time.Duration
	// Delay is the network's: Base, and an exponential part.
	Base, Extra time.Duration
	Ops         []Op
	// End is when the faults end.
	End time.Duration

	// keep tells which of the seed's operations are left; nil: all.
	keep []int
}

const (
	maxHosts    = 9
	maxK        = 5
	maxRequests = 300
	lease       = 3 * time.Second
)

// New makes the scenario of a seed.
func New(seed uint64, mode Mode) *Scenario {
	r := rand.New(rand.NewPCG(seed, 11))
	s := &Scenario{Seed: seed, Mode: mode, Hosts: 2 + r.IntN(maxHosts-1), K: 1 + r.IntN(maxK), Early: r.IntN(2) == 0}
	s.Members = 1 + r.IntN(s.Hosts)
	s.Base = []time.Duration{200 * time.Microsecond, time.Millisecond, 20 * time.Millisecond}[r.IntN(3)]
	s.Extra = []time.Duration{0, s.Base / 4, 3 * s.Base}[r.IntN(3)]
	s.End = time.Duration(4+r.IntN(16)) * time.Second
	s.Memory = r.IntN(4) == 0
	s.Write = []time.Duration{500 * time.Microsecond, 5 * time.Millisecond, 40 * time.Millisecond}[r.IntN(3)]
	g := generator{Scenario: s, r: r}
	g.requests()
	g.faults()
	g.tickets(rand.New(rand.NewPCG(seed, 12)))
	g.lastWrite(rand.New(rand.NewPCG(seed, 13)))
	g.upstreams(rand.New(rand.NewPCG(seed, 14)))
	slices.SortStableFunc(s.Ops, func(a, b Op) int { return int(a.At - b.At) })
	return s
}

// Keep returns the scenario with only these of the seed's operations.
func (s *Scenario) Keep(ops []int) *Scenario {
	whole := New(s.Seed, s.Mode)
	kept := *s
	kept.keep, kept.Ops = ops, nil
	for _, i := range ops {
		if i >= 0 && i < len(whole.Ops) {
			kept.Ops = append(kept.Ops, whole.Ops[i])
		}
	}
	return &kept
}

// kept returns which of the seed's operations are left.
func (s *Scenario) kept() []int {
	if s.keep != nil {
		return s.keep
	}
	all := make([]int, len(s.Ops))
	for i := range all {
		all[i] = i
	}
	return all
}

// Args returns what `kgate-lab replay` needs to play the scenario.
func (s *Scenario) Args() string {
	args := fmt.Sprintf("%d --mode %s", s.Seed, s.Mode)
	whole := New(s.Seed, s.Mode)
	if s.Hosts != whole.Hosts {
		args += fmt.Sprintf(" --hosts %d", s.Hosts)
	}
	if s.keep != nil {
		args += " --keep " + ranges(s.keep)
	}
	return args
}

// WithHosts returns the scenario with fewer hosts. Operations of the others are
// left out.
func (s *Scenario) WithHosts(n int) *Scenario {
	fewer := *s
	fewer.Hosts, fewer.Members = n, min(s.Members, n)
	keep := s.kept()
	fewer.keep, fewer.Ops = nil, nil
	for i, o := range s.Ops {
		if o.Host < n && (o.Kind != OpSlow && o.Kind != OpBreak || int(o.To) < n) {
			fewer.Ops = append(fewer.Ops, o)
			fewer.keep = append(fewer.keep, keep[i])
		}
	}
	return &fewer
}
