package membership

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// BenchmarkIdle measures what three gateways cost while nothing happens, raft
// and gossip together, in percent of a core for each.
func BenchmarkIdle(b *testing.B) {
	var n network
	gateways := n.three(b, nil)
	for _, g := range gateways {
		g.ready()
	}
	const span = 5 * time.Second
	for b.Loop() {
		before := cpu(b)
		time.Sleep(span) // what is measured is the time itself
		b.ReportMetric(100*float64(cpu(b)-before)/float64(span)/float64(len(gateways)), "%core/gateway")
	}
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCommit measures a change of k from a follower until its own view
// has it, in memory and on disk.
func BenchmarkCommit(b *testing.B) {
	for _, where := range []string{"memory", "disk"} {
		b.Run(where, func(b *testing.B) {
			var n network
			root := b.TempDir()
			gateways := n.three(b, func(name string) string {
				if where == "memory" {
					return ""
				}
				return fmt.Sprint(root, "/", name)
			})
			for _, g := range gateways {
				g.ready()
			}
			define(b, gateways[0], "p", 1)
			k := 1
			for b.Loop() {
				k++
				if err := gateways[0].SetK(b.Context(), "p", 1+k%kmutex.MaxK, 0, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
