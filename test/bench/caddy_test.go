package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

// startCaddy starts a Caddy that answers as its handler says, after global options.
func startCaddy(b *testing.B, name, options, handler string) *system {
	b.Helper()
	dir, addr := b.TempDir(), cluster.ReservePort(b)
	b.Setenv("XDG_DATA_HOME", dir)
	b.Setenv("XDG_CONFIG_HOME", dir)
	file := filepath.Join(dir, "Caddyfile")
	config := fmt.Sprintf("{\n\tadmin off\n%s\n}\nhttp://%s {\n%s\n}\n", options, addr, handler)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	process := cluster.StartProcess(b, cluster.Build(b, "../../contrib/caddy/cmd/caddy"), "run", "--adapter", "caddyfile", "--config", file)
	if err := cluster.AwaitListening(b.Context(), addr); err != nil {
		b.Fatalf("%v\n%s", err, process.Log.Tail(30))
	}
	return &system{name: name, process: process, urls: []string{"http://" + addr + "/"}}
}

// BenchmarkCaddy compares Caddy's reverse_proxy with and without kgate before it, and
// kgate in place of Caddy.
func BenchmarkCaddy(b *testing.B) {
	if !cluster.Soak() {
		b.Skip("compiles Caddy: set " + cluster.SoakVariable)
	}
	t, filled := newTable("In Caddy: 64 clients, answers of 1 KiB at once, median of 7 rounds in turn",
		"system\treq/s\tof Caddy\tCPU µs/answer\tof Caddy\tp50 ms\tp99 ms")
	if filled {
		return
	}
	const never = 10_000 // a k that 64 clients do not reach
	upstream := strings.TrimSuffix(startUpstream(b), "/")
	bare := startCaddy(b, "Caddy", "", "reverse_proxy "+upstream)
	member := fmt.Sprintf("kgate {\n name caddy\n listen %s\n}", cluster.ReservePort(b))
	pool := fmt.Sprintf("kgate pool {\n k %d\n}\n", never)
	systems := []*system{
		bare,
		startCaddy(b, "Caddy, kgate", member, pool+fmt.Sprintf("reverse_proxy %s {\n transport kgate\n}", upstream)),
		newSystem(b, "kgate serve", cluster.Options{Gateways: 1, Name: "alone", K: never, Upstream: upstream}),
	}
	for range rounds {
		for _, s := range systems {
			s.round(b)
		}
	}
	for _, s := range systems {
		t.row("%s\t%.0f\t%.0f %%\t%.1f\t%.0f %%\t%.2f\t%.2f", s.name, median(s.perSecond), median(percent(s.perSecond, bare.perSecond)),
			median(s.cpu), median(percent(s.cpu, bare.cpu)), median(s.p50), median(s.p99))
	}
	b.ReportMetric(median(percent(systems[1].perSecond, bare.perSecond)), "%of-Caddy")
	b.ReportMetric(0, "ns/op")
}
