package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/internal/demo"
)

// TestPollsElsewhere has many clients ask one gateway about tickets of another one. All are
// answered in time; no gateway refuses another one a connection, none loses its lease, and the leader
// stays. Nor does anybody lose a ticket that is renewed there. With KGATE_SOAK busy loops run beside it, so that the load is eight or more.
func TestPollsElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	cases := []struct{ tickets, polls, holders int }{{300, 300, 0}}
	lasts := 8 * time.Second
	if Soak() {
		cases = append(cases, struct{ tickets, polls, holders int }{600, 600, 0}, struct{ tickets, polls, holders int }{20, 2000, 800})
		lasts = 20 * time.Second
		for range 8 - busy(t) {
			StartProcess(t, "sh", "-c", "while :; do :; done")
		}
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%d polls of %d tickets, %d holders", c.polls, c.tickets, c.holders), func(t *testing.T) {
			pollElsewhere(t, c.tickets, c.polls, c.holders, lasts)
		})
	}
}

// busy returns the load of the machine, eight at most.
func busy(t *testing.T) int {
	t.Helper()
	var load float64
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(data), &load)
	}
	return min(int(load), 8)
}

func pollElsewhere(t *testing.T, tickets, polls, holders int, lasts time.Duration) {
	const (
		ttl, brief = time.Minute, 10 * time.Second
		wait, late = 5 * time.Second, 5 * time.Second
	)
	lease := Lease(3 * time.Second)
	key := filepath.Join(t.TempDir(), "cluster.key")
	if err := os.WriteFile(key, []byte(clusterkey.New()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, url := ServeUpstream(t, &demo.Upstream{})
	c := Start(t, Options{K: 1, Upstream: url, KeyFile: key, Lease: lease, Pools: []Pool{
		{Name: "files", K: holders + 1, Upstream: url, Settings: "tickets: true, queue: {per_client: {tickets: 0}}"},
	}})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: polls}, Timeout: time.Minute}
	t.Cleanup(client.CloseIdleConnections)
	owner, other := c.Gateways[0], c.Gateways[1]
	ask := func(ctx context.Context, method string, g *Gateway, path, body string) (ticket, error) {
		var tk ticket
		req, err := http.NewRequestWithContext(ctx, method, "http://"+g.HTTP+ticketsPath+path, strings.NewReader(body))
		if err != nil {
			return tk, err
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			return tk, err
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		switch {
		case err != nil || res.StatusCode == http.StatusNoContent:
			return tk, err
		case res.StatusCode >= 300:
			return tk, fmt.Errorf("%s: %s", res.Status, data)
		}
		return tk, json.Unmarshal(data, &tk)
	}
	buy := func(n int, ttl time.Duration) (all []ticket) {
		for range n {
			tk, err := ask(t.Context(), http.MethodPost, owner, "", fmt.Sprintf(`{"pool": "files", "ttl": "%v"}`, ttl))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, tk)
		}
		return all
	}
	held, all := buy(holders, brief), buy(tickets, ttl)
	before, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var answers, failed, slow, longest atomic.Int64
	var wg sync.WaitGroup
	for n := range polls {
		wg.Go(func() {
			for time.Since(began) < lasts {
				asked := time.Now()
				tk, err := ask(t.Context(), http.MethodGet, other, "/"+all[n%tickets].ID+"?wait="+wait.String(), "")
				took := time.Since(asked)
				answers.Add(1)
				if err != nil {
					if failed.Add(1) == 1 {
						t.Logf("the first that failed, after %v: %v", took, err)
					}
					continue
				}
				if tk.State == "granted" { // the first one
					Span(t, time.Second)
					continue
				}
				for old := longest.Load(); int64(took) > old && !longest.CompareAndSwap(old, int64(took)); old = longest.Load() {
				}
				if took > wait+late {
					slow.Add(1)
				}
			}
		})
	}
	for n, tk := range held {
		wg.Go(func() {
			for g := c.Gateways[1+n%2]; time.Since(began) < lasts; Span(t, brief/4) {
				if tk, err := ask(t.Context(), http.MethodPut, g, "/"+tk.ID, ""); err != nil || tk.State != "granted" {
					if failed.Add(1) == 1 {
						t.Logf("the first that failed: a held ticket is %q: %v", tk.State, err)
					}
				}
				answers.Add(1)
			}
		})
	}
	wg.Wait()
	after, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := after.Since(before)
	refused, lost, leaders := d.Sum("kgate_peer_refused_total"), d.Sum("kgate_lease_lost_total"), d.Sum("kgate_leader_changes_total")
	t.Logf("%d polls of %d tickets at a time and %d holders for %v: %d answers, %d failed, %d late, longest %v; %v connections refused, %v leases lost, %v leaders changed",
		polls, tickets, holders, lasts, answers.Load(), failed.Load(), slow.Load(), time.Duration(longest.Load()).Round(time.Millisecond), refused, lost, leaders)
	if !Soak() {
		leaders = 0 // a machine with other work to do can be silent for as long as voters wait
	}
	if failed.Load()+slow.Load() > 0 || refused+lost+leaders > 0 {
		t.Error("want none failed, late, refused, lost or changed")
	}
	// The next in line is told at once.
	if _, err := ask(t.Context(), http.MethodDelete, owner, "/"+all[0].ID, ""); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	tk, err := ask(t.Context(), http.MethodGet, other, "/"+all[1].ID+"?wait=10s", "")
	if took := time.Since(asked); err != nil || tk.State != "granted" || took > 5*time.Second {
		t.Errorf("the next in line is %s after %v: %v", tk.State, took, err)
	}
}
