package experiment

import (
	"fmt"
	"testing"
	"os"
	"strings"
	"strconv"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/workload"
)

func TestZZ(t *testing.T) {
	entries := 20000
	if v, err := strconv.Atoi(os.Getenv("ENTRIES")); err == nil { entries = v }
	rel := .005
	if v, err := strconv.ParseFloat(os.Getenv("REL"), 64); err == nil { rel = v }
	for _, c := range strings.Fields(os.Getenv("CASES")) {
		var n, k int
		var load float64
		fmt.Sscanf(c, "%d/%d/%f", &n, &k, &load)
		for _, p := range []protocol.Spec{fairk.Late(), central.Spec()} {
			cfg := lab.Config{Nodes: n, K: k, Protocol: p, Warmup: 100 * time.Second, Entries: uint64(entries),
				Workload: workload.Config{Hold: workload.Exponential(time.Second)}}
			if load < 1 {
				cfg.Workload.Open = &workload.Open{Rate: load * float64(k)}
			} else {
				cc := contention{nodes: n, k: k, delays: rel, many: true}
				cfg = cc.config(p, entries)
			}
			start := time.Now()
			r, err := under(constant("", time.Duration(rel*float64(time.Second))), cfg, 1)
			if err != nil { t.Error(err); continue }
			f := figures(r, k)
			if os.Getenv("KINDS") != "" { for _, c := range r.Messages { fmt.Printf("   %s %.3f", c.Type, float64(c.N)/float64(r.Entries)) }; fmt.Println() }
			fmt.Printf("%-14s %-10s msgs %.3f  mean %.4f p99 %.3f max %.3f overt %.4f busy %.3f  handoff %.4f (%v)\n", c, p.Name, f[5], f[0], f[2], f[3], f[8], f[9], f[7], time.Since(start).Round(time.Millisecond))
		}
	}
}
