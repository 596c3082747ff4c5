package rounds

import (
	"math/rand/v2"
	"time"

	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol/quorum"
)

// fuzz draws a run of one of the protocols with delays that vary tenfold, losses of
// any nodes, joins, and resets, as the seed says. Nobody may ever be let in beside
// another one, and when the faults have ended everybody has to be served.
func fuzz(seed uint64, form quorum.Form) Config {
	r := rand.New(rand.NewPCG(seed, uint64(form)+100))
	const latest = 100 * time.Millisecond
	cfg := Config{
		Seed: seed, Nodes: 3 + r.IntN(18), Network: network.Uniform{Low: latest / 10, High: latest},
		Rounds: 10 + r.IntN(30), Requests: 1 + r.IntN(4), Length: time.Duration(1+r.IntN(40)) * latest, Drain: 2000,
		Protocol: quorum.Options{
			Form: form, Resources: 1 + r.IntN(3), Replicas: 3 + r.IntN(5), Announce: r.IntN(2) == 0, Poll: r.IntN(2) == 0,
		},
	}
	if r.IntN(4) == 0 {
		return cfg // no faults, and no lease that could hide a defect
	}
	cfg.Protocol.Lease = 80 * latest
	cfg.Losses, cfg.Joins, cfg.Resets = r.Float64()/4, r.Float64()/4, r.Float64()/2
	return cfg
}
