package prometheus

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// TestFleet says what it shows in the package's comment.
func TestFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	t.Parallel()
	f := StartFleet(t)
	ok := t.Run("spread", f.showsSpread) && t.Run("quiet", f.isQuiet) &&
		t.Run("pools", f.alertsOfPools) && t.Run("majority", func(majority *testing.T) {
		f.alertsOfMajority(majority, func() { f.Restart(t, 0) }) // it outlives this part of the test
	}) &&
		t.Run("killed", func(killed *testing.T) {
			f.Native = StartPrometheus(t, f.Gateways, Native, Hasten(t, "rules.yaml"), Hasten(t, "alerts.yaml")) // it costs half a processor
			f.alertsOfKill(killed, func() { f.Restart(t, 2) })
		})
	if ok {
		t.Run("lint", f.passesLint)
		f.changeK(t, k+1)
		cluster.StartLoad(t, f.changeLeader(t), cluster.LoadOptions{Clients: 2 * k}) // so many that they wait, and tokens move
		for _, p := range []*Prometheus{f.Prometheus, f.Native} {
			t.Run("dashboard", func(t *testing.T) { f.answersDashboard(t, p) })
			t.Run("rules", func(t *testing.T) { f.answersRules(t, p) })
		}
		t.Run("native", f.areNative)
	}
}

// showsSpread compares what Prometheus shows with what the clients measured,
// about the same requests: all that there have been.
func (f *Fleet) showsSpread(t *testing.T) {
	measured := MeasureWaits(t, f.Gateways, []int{63, 18, 9}, 6*time.Second)
	await(t, func() error {
		shown, err := f.Prometheus.Value(t.Context(), `sum(kgate_window_admissions{pool="pool"})`)
		if err == nil && shown != float64(measured.Count) {
			err = fmt.Errorf("Prometheus knows of %g admissions, the clients of %d", shown, measured.Count)
		}
		return err
	})
	await(t, func() error { // the rule is one evaluation behind
		recorded, err := f.Prometheus.Value(t.Context(), `kgate:spread:seconds{pool="pool"}`)
		direct, err2 := f.Prometheus.Value(t.Context(), panelOf(t, "Spread of the waits").queries[0])
		if err = errors.Join(err, err2); err == nil && recorded != direct {
			err = fmt.Errorf("the rule says %g, the dashboard %g", recorded, direct)
		}
		return err
	})
	for _, c := range []struct {
		what, expr string
		measured   time.Duration
	}{
		{"spread", `kgate:spread:seconds{pool="pool"}`, measured.Spread()},
		{"mean", `kgate:mean_wait:seconds{pool="pool"}`, measured.Mean()},
	} {
		want := c.measured.Seconds()
		tolerance := max(0.02*want, 0.005)
		if !cluster.Soak() { // the clients have to wait for a busy machine, too
			tolerance = 0.3
		}
		var shown float64
		await(t, func() (err error) { // a busy Prometheus knows of some gateways only
			shown, err = f.Prometheus.Value(t.Context(), c.expr)
			if err == nil && math.Abs(shown-want) > tolerance {
				err = fmt.Errorf("%s: Prometheus shows %g s, the clients measured %g s", c.what, shown, want)
			}
			return err
		})
		t.Logf("%s: Prometheus shows %.1f ms, the clients measured %.1f ms (%d requests)", c.what, 1e3*shown, 1e3*want, measured.Count)
	}
	if most := f.Upstream.Stats().Max; most != k {
		t.Errorf("most in flight at the upstream %d, k is %d", most, k)
	}
}

// isQuiet: a loaded fleet without a fault raises no alert.
func (f *Fleet) isQuiet(t *testing.T) { f.awaitQuiet(t, f.began) }

// alertsOfPools causes what can go wrong while all gateways are well.
func (f *Fleet) alertsOfPools(t *testing.T) {
	began := time.Now()
	first := f.Gateways[:1]
	load := func(clients int, path string) (stop func()) {
		return cluster.StartLoad(t, first, cluster.LoadOptions{Clients: clients, Path: path}).Stop
	}
	// Somebody keeps the one slot: two others wait in vain, more are refused.
	_, leave := f.Ask(t, 0, "refusing", "60s")
	refused := load(4, "/refusing/?hold=50ms")
	// An upstream answers 5xx, another one not at all; tickets hold all slots; k is lowered.
	failing := load(1, "/failing/?hold=error")
	_, speak := f.Ask(t, 1, "silent", "60s")
	held := f.holdByTickets(t, "ticketed")
	f.setK(t, "changed", 1)
	// Nobody listens at the upstream's address any more.
	f.away.close()
	away := load(1, "/away/?hold=50ms")
	// Somebody who is no gateway talks to the peer port.
	silence := knock(t, f.Gateways[0].Peer)
	// A gateway of the same fleet has found no other, and has few files.
	alone := f.startAlone(t)

	want := []string{
		"KgateFilesRunningOut", "KgateKUnlikeConfiguration/changed", "KgateMembersMissing", "KgatePeersRefused", "KgateRefused/refusing", "KgateTicketsHoldAll/ticketed",
		"KgateUpstreamDown/away", "KgateUpstreamDown/checked", "KgateUpstreamFailing/failing", "KgateUpstreamSilent/silent", "KgateViewsDiffer",
	}
	f.awaitFiring(t, f.Prometheus, began, want...)
	f.saysWhat(t)

	silence()
	f.Prometheus.Scrape(t, f.Gateways...)
	alone()
	f.away.serve(t)
	refused()
	leave()
	failing()
	speak()
	held()
	f.setK(t, "changed", 2)
	refused = load(1, "/refusing/?hold=50ms")
	f.awaitQuiet(t, began, append(want, "KgateNoProgress/refusing", "KgateUpstreamSilent/refusing")...)
	refused()
	away()
}

// holdByTickets has a ticket hold the only slot of a pool, and a request wait for it.
func (f *Fleet) holdByTickets(t *testing.T, pool string) (end func()) {
	t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	id := f.ticket(t, pool)
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f.call(t, http.MethodPut, "/.kgate/tickets/"+id, nil)
			case <-quit:
				f.call(t, http.MethodDelete, "/.kgate/tickets/"+id, nil)
				return
			}
		}
	}()
	_, leave := f.Ask(t, 0, pool, "1ms")
	end = sync.OnceFunc(func() { close(quit); <-done; leave() })
	t.Cleanup(end)
	return end
}

// saysWhat checks the texts of the alerts that fire.
func (f *Fleet) saysWhat(t *testing.T) {
	t.Helper()
	firing, err := f.Prometheus.Firing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range firing {
		for _, key := range []string{"summary", "description"} {
			text := a.Annotations[key]
			if text == "" || strings.Contains(text, "no value") || strings.Contains(text, "error") {
				t.Errorf("%s of %s: %q", key, a.Name, text)
			}
		}
	}
}

// knock says to a peer port what no gateway says, again and again.
func knock(t *testing.T, addr string) (stop func()) {
	t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			if conn, err := net.Dial("tcp", addr); err == nil {
				_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")) // it is refused
				_ = conn.Close()
			}
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}

// startAlone starts a gateway that founds a cluster of its own, and uses up its
// files.
func (f *Fleet) startAlone(t *testing.T) (stop func()) {
	t.Helper()
	const files, connections = 80, 60
	c := cluster.Start(t, cluster.Options{
		Gateways: 1, Name: "alone", K: k, Upstream: f.away.URL(),
		Hosts: []cluster.Host{{
			Command: []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files)},
			Peers:   "127.0.0.1", Clients: "127.0.0.1",
		}},
	})
	f.Prometheus.Scrape(t, append(c.Gateways, f.Gateways...)...)
	var conns []net.Conn
	for range connections {
		conn, err := net.Dial("tcp", c.Gateways[0].HTTP)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	return func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
		if _, err := c.Gateways[0].Stop(); err != nil {
			t.Error(err)
		}
	}
}

// comeback is what the hastened rules may see for some seconds while gateways agree
// again who they are, and until the leases of those that were lost have run out.
var comeback = []string{
	"KgateCapacityWithheld/away", "KgateCapacityWithheld/changed", "KgateCapacityWithheld/checked", "KgateCapacityWithheld/failing", "KgateCapacityWithheld/silent", "KgateCapacityWithheld/ticketed", "KgateCapacityWithheld/kept", "KgateCapacityWithheld/pool",
	"KgateCapacityWithheld/refusing", "KgateMembersMissing", "KgatePeersRefused", "KgateQuorumAtRisk", "KgateViewsDiffer",
}

// alertsOfMajority stops two of the three gateways, and lets them go on. The third
// gets no copy of a ticket to them. It is taken out of service, as the runbook says.
func (f *Fleet) alertsOfMajority(t *testing.T, restart func()) {
	began := time.Now()
	first, others := f.Gateways[0], f.Gateways[1:]
	if status, _ := f.AskForTicket(t, first, cluster.PoolName); <-status != http.StatusCreated { // the first of its pool
		t.Fatal("no ticket")
	}
	signal := func(s syscall.Signal) {
		for _, g := range others {
			if err := g.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	_, end := f.AskForTicket(t, first, cluster.PoolName)
	defer end()
	want := []string{"KgateGatewayDown", "KgateLeaseLost", "KgateNoLease", "KgateQuorumAtRisk"}
	if cluster.Soak() { // only until its lease is over: a busy Prometheus may not see it
		want = append(want, "KgateReplicaBehind")
	}
	f.awaitFiring(t, f.Prometheus, began, want...)
	tells(t, first, "start gw-2 or gw-3 again")
	(&Night{Fleet: f}).obeys(t, first, "drain", false)
	signal(syscall.SIGCONT)
	if _, err := first.Stop(); err != nil {
		t.Error(err)
	}
	restart()
	f.awaitQuiet(t, began, append(append(want, comeback...), "KgateReplicaBehind")...)
}

// alertsOfKill kills the gateway that has the only slot of a pool, and has it started again.
func (f *Fleet) alertsOfKill(t *testing.T, restart func()) {
	for _, g := range f.Gateways {
		await(t, func() error { return g.AwaitReady(t.Context()) })
	}
	began := time.Now()
	f.Ask(t, 2, "kept", "60s")
	answer, _ := f.Ask(t, 0, "kept", "1ms")
	if err := f.Gateways[2].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	want := []string{"KgateCapacityWithheld/kept", "KgateGatewayDown"}
	f.awaitFiring(t, f.Prometheus, began, want...)
	tells(t, f.Gateways[0], "kept: 1 of 1 slots withheld: a lost gateway")
	f.awaitFiring(t, f.Native, began, want...)
	if status := <-answer; status != http.StatusOK {
		t.Errorf("who waited for the slot of the killed gateway got %d", status)
	}
	restart()
	f.awaitQuiet(t, began, append(append(want, comeback...), "KgateNoProgress/kept")...)
}

// changeK changes k, and waits until the dashboard marks it.
func (f *Fleet) changeK(t *testing.T, to int) {
	t.Helper()
	f.setK(t, cluster.PoolName, to)
	f.awaitEvent(t, "k changed")
}

// changeLeader stops the gateway that leads, and returns the others.
func (f *Fleet) changeLeader(t *testing.T) (others []*cluster.Gateway) {
	t.Helper()
	s, err := f.Gateways[0].Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(f.Gateways, func(g *cluster.Gateway) bool { return g.Name == s.Cluster.Leader })
	if i < 0 {
		t.Fatalf("%q leads", s.Cluster.Leader)
	}
	if _, err := f.Gateways[i].Stop(); err != nil {
		t.Fatal(err)
	}
	f.awaitEvent(t, "Leader changed")
	return slices.Delete(slices.Clone(f.Gateways), i, i+1)
}

// awaitEvent waits until the dashboard marks an event.
func (f *Fleet) awaitEvent(t *testing.T, name string) {
	t.Helper()
	for _, p := range []*Prometheus{f.Prometheus, f.Native} {
		await(t, func() error {
			_, err := p.Value(t.Context(), panelOf(t, "event "+name).queries[0])
			return err
		})
	}
}

// picture is a panel of the dashboard.
type picture struct {
	title   string
	queries []string
}

// panels returns the dashboard's panels, with the variables put in. The events that it
// marks are the last ones.
func panels(t *testing.T) []picture {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title, Description string
			Targets            []struct{ Expr string }
			FieldConfig        struct{ Defaults struct{ Min *float64 } }
		}
		Annotations struct {
			List []struct{ Name, Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "../../configs/grafana/dashboards/kgate.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$job", "kgate", "$pool", cluster.PoolName, "$gateway", ".*", "[5m:5s]", "[4s:250ms]", "$__rate_interval", "4s")
	var all []picture
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			continue // a row's head
		}
		if strings.Contains(p.Description, "elow 0") && p.FieldConfig.Defaults.Min != nil {
			t.Errorf("%q says what it means below 0, and does not show it", p.Title)
		}
		one := picture{title: p.Title}
		for _, target := range p.Targets {
			one.queries = append(one.queries, variables.Replace(target.Expr))
		}
		all = append(all, one)
	}
	for _, a := range dashboard.Annotations.List {
		all = append(all, picture{"event " + a.Name, []string{variables.Replace(a.Expr)}})
	}
	return all
}

// panelOf returns the panel of that title.
func panelOf(t *testing.T, title string) picture {
	t.Helper()
	for _, p := range panels(t) {
		if p.title == title {
			return p
		}
	}
	t.Fatalf("no panel is called %q", title)
	return picture{}
}

// answersDashboard asks every query of every panel for the time of the test. There is load
// meanwhile: a busy machine may have missed the scrapes of the load before, and then a rate
// has had no two to compare.
func (f *Fleet) answersDashboard(t *testing.T, p *Prometheus) {
	all := panels(t)
	queries := 0
	for _, one := range all {
		for _, expr := range one.queries {
			if strings.Contains(expr, "kgate_trace_spans_total") || strings.Contains(expr, "kgate_certificate_expiry") || strings.Contains(expr, "kgate_rate_") || strings.Contains(expr, "kgate_upstream_capacity") {
				continue // there is no collector here, no TLS, no rate and no upstream with a k of its own
			}
			if p == f.Native && strings.Contains(expr, `status="suspended"`) {
				continue // it saw one gateway lost, for two seconds, and a busy machine misses scrapes
			}
			queries++
			f.hasData(t, p, one.title, expr)
		}
	}
	t.Logf("%d panels, %d queries", len(all), queries)
	if queries < 30 {
		t.Error("the dashboard has lost its panels")
	}
}

// answersRules asks for every recorded series.
func (f *Fleet) answersRules(t *testing.T, p *Prometheus) {
	for _, r := range Rules(t, "rules.yaml") {
		f.hasData(t, p, "rule", r.Record)
	}
}

// areNative: each Prometheus has the buckets that it asked for, and no others.
func (f *Fleet) areNative(t *testing.T) {
	const buckets, native = `count(kgate_hold_time_seconds_bucket) or vector(0)`, `count(kgate_hold_time_seconds) or vector(0)`
	for _, c := range []struct {
		of   *Prometheus
		expr string
		some bool
	}{{f.Prometheus, buckets, true}, {f.Prometheus, native, false}, {f.Native, buckets, false}, {f.Native, native, true}} {
		await(t, func() error { // a busy machine misses some scrapes
			v, err := c.of.Value(t.Context(), c.expr)
			if err == nil && v > 0 != c.some {
				err = fmt.Errorf("%s: %v series", c.expr, v)
			}
			return err
		})
	}
}

// passesLint: promtool finds nothing to say against what a gateway shows.
func (f *Fleet) passesLint(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.Gateways[0].Admin+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	cmd := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	cmd.Stdin = res.Body
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// hasData waits until an expression has been a number at some time.
func (f *Fleet) hasData(t *testing.T, p *Prometheus, what, expr string) {
	t.Helper()
	await(t, func() error {
		series, err := p.Range(t.Context(), expr, f.began)
		if err != nil {
			return err
		}
		for _, s := range series {
			for _, v := range s.Values {
				if !math.IsNaN(v) && !math.IsInf(v, 0) {
					return nil
				}
			}
		}
		return fmt.Errorf("%s: no data for %s", what, expr)
	})
}
