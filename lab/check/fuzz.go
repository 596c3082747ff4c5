package check

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/workload"
)

// Claims say what a protocol is said to survive.
type Claims struct {
	// K is the largest number of tokens.
	K int
	// Crashes, Restarts, Leaves and Joins say whether such changes happen.
	Crashes, Restarts, Leaves, Joins bool
	// Nodes at most; 0: 9.
	Nodes int
}

// MaxDelay is the longest delay of a message in [Fuzz].
const MaxDelay = 2 * time.Second

// The run of a seed: changes in the first part, then time enough for everybody.
const (
	fuzzChanges = 10 * time.Minute
	fuzzEnd     = 30 * time.Minute
	fuzzDetect  = 3 * time.Second // or a hundredth of it
	// fuzzWait is the longest that anybody may wait at the end: all others twice
	// in line before it, and the way there.
	fuzzWait = 10 * time.Minute
)

// Fuzz plays one seed. The error says how to see it again.
func Fuzz(p protocol.Spec, c Claims, seed uint64) (err error) {
	cfg := scenario(p, c, seed)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %s, seed %d: %v\n%s", ErrPanic, p.Name, seed, r, debug.Stack())
		}
	}()
	result, err := lab.Run(cfg)
	switch {
	case err != nil:
		return err
	case result.Entries == 0:
		return fmt.Errorf("%w: %s, seed %d: no entry at all", ErrStarved, p.Name, seed)
	case result.Oldest > fuzzWait:
		return fmt.Errorf("%w: %s, seed %d: somebody still waits after %v; %d nodes, changes %v", ErrStarved, p.Name, seed, result.Oldest, cfg.Nodes, cfg.Changes)
	}
	return nil
}

// scenario is what happens under a seed.
func scenario(p protocol.Spec, c Claims, seed uint64) lab.Config {
	r := rand.New(rand.NewPCG(seed, 0x636865636b))
	if c.Nodes == 0 {
		c.Nodes = 9
	}
	cfg := lab.Config{
		Seed: seed, Nodes: 2 + r.IntN(c.Nodes-1), K: 1 + r.IntN(max(c.K, 1)), Protocol: p, Network: uniform{MaxDelay / time.Duration(1+r.IntN(20)), r.IntN(2) == 0},
		Workload: workload.Config{Hold: workload.Exponential([]time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second}[r.IntN(3)])},
		Duration: fuzzEnd, Detect: fuzzDetect / []time.Duration{1, 100}[r.IntN(2)],
	}
	cfg.Members = cfg.Nodes
	if c.Joins {
		cfg.Members = 1 + r.IntN(cfg.Nodes)
	}
	cfg.Workload.Closed = &workload.Closed{Rate: []float64{.02, .1, 1}[r.IntN(3)]}
	var kinds []lab.ChangeKind
	for _, k := range []struct {
		kind  lab.ChangeKind
		happy bool
	}{{lab.Crash, c.Crashes}, {lab.Restart, c.Restarts}, {lab.Leave, c.Leaves}, {lab.Join, c.Joins}} {
		if k.happy {
			kinds = append(kinds, k.kind)
		}
	}
	if len(kinds) == 0 {
		return cfg
	}
	for range r.IntN(12 * len(kinds) * len(kinds)) {
		at := time.Duration(r.Int64N(int64(fuzzChanges)))
		if n := len(cfg.Changes); n > 0 && r.IntN(3) == 0 { // soon after another one
			at = cfg.Changes[n-1].At + time.Duration(r.Int64N(int64(2*fuzzDetect)))
		}
		cfg.Changes = append(cfg.Changes, lab.Change{At: at, Node: r.IntN(cfg.Nodes), Kind: kinds[r.IntN(len(kinds))]})
	}
	slices.SortStableFunc(cfg.Changes, func(a, b lab.Change) int { return int(a.At - b.At) })
	return keepOne(cfg)
}

// keepOne takes out the changes after which nobody might be left.
func keepOne(cfg lab.Config) lab.Config {
	in := make([]bool, cfg.Nodes)
	for i := range cfg.Members {
		in[i] = true
	}
	cfg.Changes = slices.DeleteFunc(cfg.Changes, func(c lab.Change) bool {
		left := 0
		for i, is := range in {
			if is && i != c.Node {
				left++
			}
		}
		switch c.Kind {
		case lab.Crash, lab.Leave:
			if left == 0 {
				return true
			}
			in[c.Node] = false
		case lab.Restart, lab.Join:
			// It may not apply: it counts as in only if it was from the beginning.
		}
		return false
	})
	return cfg
}

// uniform delays are between nothing and a bound; half of the networks have a few
// that are much shorter than the others.
type uniform struct {
	most    time.Duration
	twofold bool
}

// Delay implements [sim.Network].
func (u uniform) Delay(_, _ int, r *rand.Rand) time.Duration {
	d := time.Duration(r.Float64() * float64(u.most))
	if u.twofold && r.IntN(3) == 0 {
		d /= 50
	}
	return d
}

// Steady implements [sim.Network].
func (uniform) Steady() bool { return false }

// Mean implements [network.Model].
func (u uniform) Mean() time.Duration { return u.most / 2 }
