package trial_test

import (
	"testing"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/protocol/trial"
	"github.com/kgate/kgate/lab/workload"
)

var trials = []protocol.Spec{trial.Direct(), trial.OnArrival(), trial.Ledger(), trial.LedgerHint()}

// Whatever is tried must let everybody in, with clients that leave, in a WAN, and
// never more than k: only then its figures count.
func TestTrialsWork(t *testing.T) {
	const nodes, k = 7, 5
	hold := workload.Exponential(500 * time.Millisecond)
	for _, p := range trials {
		for name, load := range map[string]workload.Config{
			"closed":   {Closed: &workload.Closed{Rate: 1, PerNode: 4}, Hold: hold},
			"patience": {Open: &workload.Open{Rate: workload.Load(1.1, k, hold.Mean())}, Hold: hold, Patience: 5 * time.Second},
			"skew":     {Open: &workload.Open{Rate: workload.Load(.6, k, hold.Mean()), Weights: workload.Skew(nodes, 2)}, Hold: hold},
		} {
			r, err := lab.Run(lab.Config{
				Seed: 1, Nodes: nodes, K: k, Protocol: p, Network: network.Clustered(nodes, 3), Workload: load,
				Warmup: time.Minute, Duration: 10 * time.Minute,
			})
			if err != nil {
				t.Fatal(p.Name, name, err)
			}
			if r.Entries < 2000 || r.Wait.Max() > time.Minute {
				t.Errorf("%s, %s: %d entries, the longest wait %v", p.Name, name, r.Entries, r.Wait.Max())
			}
		}
	}
}

// The copy of late binding with both switches off is late binding, message for
// message.
func TestCopyIsLate(t *testing.T) {
	run := func(p protocol.Spec) (messages uint64, mean time.Duration) {
		r, err := lab.Run(lab.Config{
			Seed: 2, Nodes: 6, K: 4, Protocol: p, Network: network.Constant(20 * time.Millisecond),
			Workload: workload.Config{Closed: &workload.Closed{Rate: 1, PerNode: 5}, Hold: workload.Exponential(time.Second)},
			Entries:  5000,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.Sent(), r.Wait.Mean()
	}
	m1, w1 := run(fairk.Late())
	m2, w2 := run(trial.Copy())
	if m1 != m2 || w1 != w2 {
		t.Errorf("%d messages and a mean wait of %v, the copy %d and %v", m1, w1, m2, w2)
	}
}
