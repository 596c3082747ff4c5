package quorum_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/quorum"
	"github.com/kgate/kgate/lab/workload"
)

func run(t *testing.T, p protocol.Spec, nodes int, rate float64) *meter.Result {
	t.Helper()
	r, err := lab.Run(lab.Config{
		Seed: 1, Nodes: nodes, K: 1, Protocol: p, Network: network.Jitter{Base: 100 * time.Millisecond, Extra: 100 * time.Millisecond},
		Workload: workload.Config{Closed: &workload.Closed{Rate: rate, PerNode: 2}, Hold: workload.Constant(10 * time.Second), Patience: time.Hour},
		Entries:  300, Duration: 1000 * time.Hour,
	})
	if err != nil {
		t.Fatal(p.Name, nodes, err)
	}
	return r
}

// Everybody is let in, alone, with one node and with a hundred, contended or not,
// with many requests per node and with clients that leave. The same seed gives the
// same run.
func TestEverybodyEnters(t *testing.T) {
	for _, p := range quorum.Specs(0) {
		for _, nodes := range []int{1, 2, 3, 10, 100} {
			for _, rate := range []float64{.5, .0005} {
				r := run(t, p, nodes, rate)
				if r.Entries < 300 {
					t.Errorf("%s, %d nodes, rate %g: %d entries", p.Name, nodes, rate, r.Entries)
				}
				if nodes == 10 && !reflect.DeepEqual(r, run(t, p, nodes, rate)) {
					t.Errorf("%s: two runs differ", p.Name)
				}
			}
		}
	}
}

func TestOneTokenOnly(t *testing.T) {
	_, err := lab.Run(lab.Config{
		Nodes: 3, K: 2, Protocol: quorum.Specs(0)[0], Network: network.Constant(time.Second), Entries: 1,
		Workload: workload.Config{Closed: &workload.Closed{Rate: 1}, Hold: workload.Constant(time.Second)},
	})
	if err == nil {
		t.Error("k = 2 is taken")
	}
}
