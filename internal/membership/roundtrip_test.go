package membership

import (
	"fmt"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// With a round trip of a tenth of the lease everything is quiet: nobody is elected
// twice, suspected, or without a lease. Each new connection costs two round trips
// more, as a handshake of TCP and one of TLS do.
func TestRoundTrips(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const leaseTime = 3 * time.Second
		n := network{delay: leaseTime / 20}
		var gateways []*gateway
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			conf := config{expect: 5, lease: leaseTime}
			if len(gateways) > 0 {
				conf.join = []string{gateways[0].gossip}
			}
			gateways = append(gateways, n.start(t, name, conf))
		}
		began := time.Now()
		settle(t, gateways)
		t.Logf("whole after %v", time.Since(began))
		until(t, "five voters", func() bool { names, _ := leaderOf(t, gateways).Voting(); return len(names) == 5 })
		time.Sleep(leaseTime)
		if trouble := staysAsItIs(gateways, 10*leaseTime); trouble != "" {
			t.Error(trouble)
		}
	})
}

// staysAsItIs watches for that long that each gateway keeps its lease, and that there is no
// election and no new view. It returns what is not so, at once.
func staysAsItIs(gateways []*gateway, during time.Duration) (trouble string) {
	view := gateways[0].View().Number
	terms := make(map[string]uint64)
	nodes := make(map[string]kmutex.Node)
	for _, g := range gateways {
		terms[g.name], nodes[g.name] = g.stats().Term, g.Standing().Node
	}
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, g := range gateways {
			now := time.Now()
			if s := g.Standing(); s.Node != nodes[g.name] || !s.Valid(now) {
				return fmt.Sprintf("%s stands as %+v, before as %d", g.name, s, nodes[g.name])
			}
		}
	}
	for _, g := range gateways {
		if now := g.stats().Term; now != terms[g.name] || g.View().Number != view {
			return fmt.Sprintf("%s: term %d after term %d, view %d after view %d", g.name, now, terms[g.name], g.View().Number, view)
		}
	}
	return ""
}
