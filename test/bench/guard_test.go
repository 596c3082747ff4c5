package bench

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/mutant"
	"github.com/kgate/kgate/test/cluster"
)

// unguarded makes a kgate without what this benchmark asks the price of: the
// lease is not looked at before an admission and a write, and nobody counts tokens.
var unguarded = []mutant.Change{
	{
		File: "../../internal/gateway/env.go",
		Old:  "return self != 0 && s.Node == self && e.now().Before(s.Until)", New: "return self != 0 && s.Node == self",
	},
	{File: "../../internal/node/peers.go", Old: "if !s.Valid(time.Now()) {\n\t\treturn 0", New: "if s.Node == 0 {\n\t\treturn 0"},
	{File: "../../internal/gateway/pool.go", Old: "Audit: true,", New: "Audit: false,"},
}

// buildChanged returns a binary with some places changed.
func buildChanged(b *testing.B, changes ...mutant.Change) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "kgate")
	build := exec.CommandContext(b.Context(), "go", "build", "-C", "../../cmd/kgate", "-overlay", mutant.Overlay(b, changes...), "-o", path, ".")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// BenchmarkGuards compares kgate with one that looks at no lease, counts no
// tokens and copies no tickets, side by side.
func BenchmarkGuards(b *testing.B) {
	t, filled := newTable("What leases, audits and replication cost: median of 15 rounds in turn",
		"system\treq/s\tp50 ms\tp99 ms")
	if filled {
		return
	}
	upstream := startUpstream(b)
	off := buildChanged(b, unguarded...)
	pairs := []struct {
		name string
		k    int
	}{{"k never reached", 10_000}, {"k = 8, contended", 8}}
	for i, p := range pairs {
		with := newSystem(b, "three kgates, "+p.name, cluster.Options{Name: "on" + string(rune('a'+i)), K: p.k, Upstream: upstream})
		for _, g := range with.cluster.Gateways {
			useTicket(b, g)
		}
		without := newSystem(b, "the same without", cluster.Options{Name: "off" + string(rune('a'+i)), K: p.k, Upstream: upstream, Binary: off})
		const guardRounds = 15
		var rate, p50, p99 []float64
		for range guardRounds {
			with.round(b)
			without.round(b)
			n := len(with.perSecond) - 1
			rate = append(rate, 100*with.perSecond[n]/without.perSecond[n])
			p50 = append(p50, 100*with.p50[n]/without.p50[n])
			p99 = append(p99, 100*with.p99[n]/without.p99[n])
		}
		for _, s := range []*system{with, without} {
			t.row("%s\t%.0f\t%.2f\t%.2f", s.name, median(s.perSecond), median(s.p50), median(s.p99))
		}
		t.note("%s: requests/s %.1f %%, p50 %.1f %%, p99 %.1f %% of those without, round by round (median; aim: within 5 %%)",
			p.name, median(rate), median(p50), median(p99))
		b.ReportMetric(median(rate), "%of-without/"+string(rune('a'+i)))
	}
	b.ReportMetric(0, "ns/op")
}

// useTicket takes and ends a ticket, so that replication is on from then on.
func useTicket(b *testing.B, g *cluster.Gateway) {
	b.Helper()
	client := &http.Client{Timeout: 10 * time.Second}
	url := "http://" + g.Admin + "/.kgate/tickets"
	res, err := client.Post(url, "application/json", strings.NewReader(`{"pool":"`+cluster.PoolName+`","ttl":"10s"}`))
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusCreated {
		b.Fatal(res.Status, err)
	}
	req, err := http.NewRequest(http.MethodDelete, "http://"+g.Admin+res.Header.Get("Location"), http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	end, err := client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	end.Body.Close()
	if end.StatusCode != http.StatusNoContent {
		b.Fatal(end.Status)
	}
}
