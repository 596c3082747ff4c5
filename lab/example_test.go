package lab_test

import (
	"fmt"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/protocol/ideal"
	"github.com/kgate/kgate/lab/workload"
)

// Three protocols under the same arrivals: ten gateways, k = 16, holds with SCV 4
// and a load of .8.
func Example() {
	const nodes, k = 10, 16
	hold := workload.SCV(time.Second, 4)
	for _, p := range []protocol.Spec{
		fairk.Late(),
		fairk.Spec("fairk-late-2NT", fairk.Options{Ask: fairk.Times(2)}),
		ideal.Spec(),
	} {
		var means []float64
		for seed := range uint64(5) {
			r, err := lab.Run(lab.Config{
				Seed: seed, Nodes: nodes, K: k, Protocol: p,
				Network:  network.Constant(5 * time.Millisecond),
				Workload: workload.Config{Open: &workload.Open{Rate: workload.Load(.8, k, hold.Mean())}, Hold: hold},
				Warmup:   time.Minute, Duration: 10 * time.Minute,
			})
			if err != nil {
				fmt.Println(err)
				return
			}
			means = append(means, r.Wait.Mean().Seconds())
		}
		in := meter.Confidence(means)
		fmt.Println(p.Name, "waits less than a second:", in.Mean+in.Half < 1)
	}
	// Output:
	// fairk-late waits less than a second: true
	// fairk-late-2NT waits less than a second: true
	// ideal waits less than a second: true
}
