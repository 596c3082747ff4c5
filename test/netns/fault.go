package netns

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// Verdict is what a fault does to a packet from one gateway to another, in nft's
// words.
type Verdict string

// Verdicts.
const (
	// Drop loses it.
	Drop Verdict = "drop"
	// Reset refuses it. The refusals themselves pass.
	Reset Verdict = "tcp flags & rst == 0 reject with tcp reset"
	// NoNew lets connections live that there are, and loses the packets that
	// would open another.
	NoNew Verdict = "tcp flags & (syn | ack) == syn drop"
)

// Long loses packets of more than so many bytes, as behind a router that does not say
// that they are too long.
func Long(bytes int) Verdict { return Verdict(fmt.Sprintf("meta length > %d drop", bytes)) }

// Lose loses so many percent, at random.
func Lose(percent int) Verdict {
	return Verdict(fmt.Sprintf("numgen random mod 100 < %d drop", percent))
}

// Way is what happens to packets from one gateway to another.
type Way struct {
	From, To int // places in Network.Hosts
	Verdict  Verdict
}

// faults are those that hold.
type faults struct {
	mu     sync.Mutex
	chains map[int]string // by the gateway that does not hear
	cuts   []cluster.Cut
}

// Set has exactly these faults hold from now on, and returns when they all do.
func (nw *Network) Set(tb testing.TB, ways ...Way) {
	tb.Helper()
	nw.faults.mu.Lock()
	defer nw.faults.mu.Unlock()
	began := time.Now()
	chains := make(map[int]string)
	for _, w := range ways {
		chains[w.To] += fmt.Sprintf("add rule inet kgatetest in ip saddr %s %s\n", nw.Hosts[w.From].Peers, w.Verdict)
	}
	errs := make([]error, len(nw.Hosts))
	var wg sync.WaitGroup
	for i := range nw.Hosts {
		if chains[i] == nw.faults.chains[i] {
			continue
		}
		// One transaction: at no time is there neither the old nor the new.
		script := "add table inet kgatetest\n" +
			"add chain inet kgatetest in { type filter hook input priority 0; }\n" +
			"flush chain inet kgatetest in\n" + chains[i]
		wg.Go(func() { errs[i] = command(script, "ip", "netns", "exec", nw.gateway(i), "nft", "-f", "-") })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
	nw.faults.chains = chains
	now := time.Now()
	nw.faults.end(func(*cluster.Cut) bool { return true }, began)
	for _, w := range ways {
		nw.faults.cuts = append(nw.faults.cuts, cluster.Cut{From: nameOf(w.From), To: nameOf(w.To), Since: began, Held: now, Refused: w.Verdict == Reset, Partial: w.Verdict != Reset && w.Verdict != Drop})
	}
}

// end has the cuts that still last, and are these, end now.
func (f *faults) end(these func(*cluster.Cut) bool, now time.Time) {
	for i := range f.cuts {
		if c := &f.cuts[i]; c.Until.IsZero() && these(c) {
			c.Until = now
		}
	}
}

// nameOf is that of the gateway at a place in Network.Hosts.
func nameOf(place int) string { return fmt.Sprintf("gw-%d", place+1) }

// Cuts returns all faults that there were, and are.
func (nw *Network) Cuts() []cluster.Cut {
	nw.faults.mu.Lock()
	defer nw.faults.mu.Unlock()
	return slices.Clone(nw.faults.cuts)
}

// Heal ends all faults.
func (nw *Network) Heal(tb testing.TB) {
	tb.Helper()
	nw.Set(tb)
}

// Split returns the faults between groups: who is not in the same one is not
// heard.
func Split(v Verdict, groups ...[]int) (ways []Way) {
	for i, a := range groups {
		for j, b := range groups {
			if i == j {
				continue
			}
			for _, from := range a {
				for _, to := range b {
					ways = append(ways, Way{from, to, v})
				}
			}
		}
	}
	return ways
}

// Without returns the numbers below n that are not in the list.
func Without(n int, list ...int) (rest []int) {
	for i := range n {
		if !slices.Contains(list, i) {
			rest = append(rest, i)
		}
	}
	return rest
}

// Flap sets the faults and takes them away again, each for a while, until the
// time is over.
func (nw *Network) Flap(tb testing.TB, every, during time.Duration, ways ...Way) {
	tb.Helper()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	until := time.Now().Add(during)
	for cut := true; time.Now().Before(until); cut = !cut {
		if cut {
			nw.Set(tb, ways...)
		} else {
			nw.Heal(tb)
		}
		<-ticker.C
	}
	nw.Heal(tb)
}
