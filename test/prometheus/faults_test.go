package prometheus

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

var update = flag.Bool("update", false, "write docs/faults.md")

// faultsPage is what TestFaults writes.
const faultsPage = "../../docs/faults.md"

// fault is one of those that an operator meets at night.
type fault struct {
	name    string
	options func(t *testing.T, o *cluster.Options)
	cause   func(t *testing.T, n *nightly)
	// said is what the first line of status has to say, logged what the log does, and
	// alerts are those that fire, the first one first. Others may not be there.
	said, logged string
	alerts       []string
	// also are alerts that may follow.
	also []string
	// command of the runbook, at the first gateway, which must work in this state.
	command []string
}

// faults are in the order of the page.
var faults = []fault{
	{
		name: "a gateway is killed", cause: func(t *testing.T, n *nightly) { n.signal(t, syscall.SIGKILL, 2) },
		said: `^One more loss among the 3 voters stops all|^gw-3 is (suspended|lost)`, logged: "gateway lost", alerts: []string{"KgateQuorumAtRisk", "KgateGatewayDown"},
		command: []string{"leave", "--force", "gw-3"},
	},
	{
		name: "the upstream refuses connections", cause: func(_ *testing.T, n *nightly) { n.upstream.stop() },
		said: `^pool: http://\S+ is down, for \S+ s: .*connection refused`, logged: "upstream is unhealthy", alerts: []string{"KgateUpstreamDown"},
	},
	{
		name: "the upstream is silent", cause: func(_ *testing.T, n *nightly) { n.upstream.mode.Store(silent) },
		said: `^pool: http://\S+ has not answered for .*requests wait`, logged: "upstream is silent", alerts: []string{"KgateUpstreamSilent"}, also: []string{"KgateUpstreamFailing"},
	},
	{
		name: "the upstream is 15 times slower", cause: func(_ *testing.T, n *nightly) { n.upstream.mode.Store(slow) },
		said: `^pool: http://\S+ takes 7\d\d ms to answer, usually`, logged: "upstream is slow", alerts: []string{"KgateUpstreamSlow"}, command: []string{"pool", "set", "pool", "--k", "3"},
	},
	{
		name: "the upstream answers 500", cause: func(_ *testing.T, n *nightly) { n.upstream.mode.Store(broken) },
		said: `^pool: http://\S+ answered \d+ of \d+ requests in 60 s with 5xx`, logged: "upstream fails requests", alerts: []string{"KgateUpstreamFailing"},
	},
	{
		name: "the majority is gone (two gateways stand still)", cause: func(t *testing.T, n *nightly) { n.signal(t, syscall.SIGSTOP, 1, 2) },
		said: `^This gateway admits nothing: `, logged: "lease lost", alerts: []string{"KgateNoLease", "KgateQuorumAtRisk", "KgateGatewayDown"},
		also: []string{"KgateNoProgress", "KgateRefused", "KgateWaitsLong"},
	},
	{
		name: "the disk of a gateway fills up", options: func(_ *testing.T, o *cluster.Options) { o.Gateways, o.Durable = 2, true }, cause: func(t *testing.T, n *nightly) { n.fill(t) },
		said: `^gw-3: the disk of data_dir \S+ has 0 MiB of 8 MiB left`, logged: "the disk of data_dir is nearly full", alerts: []string{"KgateDiskFull"},
	},
	{
		name: "a certificate expires", options: func(t *testing.T, o *cluster.Options) {
			o.ClientTLS = cluster.NewTLSFilesUntil(t, time.Now().Add(usualFor+10*time.Second))
		}, cause: func(*testing.T, *nightly) { time.Sleep(10 * time.Second) },
		said: `the certificate \S+ has expired on`, alerts: []string{"KgateCertificateExpiring"}, also: []string{"KgateCertificateExpiring"},
	},
	{
		name: "k is lowered", cause: func(t *testing.T, n *nightly) { n.setK(t, cluster.PoolName, 3) },
		said: `pool pool has k 3, and the configuration here says 6`, logged: "k changed", alerts: []string{"KgateKUnlikeConfiguration"}, command: []string{"pool", "set", "pool", "--k", "6"},
	},
	{
		name: "tickets hold everything", cause: func(t *testing.T, n *nightly) { n.hoard(t) },
		said: `^pool: tickets hold all 6 slots, one for .*requests wait`, alerts: []string{"KgateTicketsHoldAll"},
	},
	{
		name: "a client takes all places", options: func(_ *testing.T, o *cluster.Options) { o.QueueLimit = 60 }, cause: func(t *testing.T, n *nightly) { n.crowd(t) },
		said: `^pool: the client \S+ has \d+ of \d+ places; others wait or are refused`, logged: "request refused", alerts: []string{"KgateRefused"}, also: []string{"KgateWaitsLong"},
	},
}

// usualFor is how long all is well before a fault. The alerts that compare with what is usual compare
// with a minute here, not with an hour.
const usualFor = 140 * time.Second

// nightly is a fleet that meets a fault.
type nightly struct {
	*Fleet
	upstream *faulty
	dir      string // on the small disk
}

// met is what an operator saw of a fault.
type met struct {
	status, page, log, alert string
	after                    time.Duration
}

// TestFaults causes each fault in a fleet of its own, with the rules as operators take them and a scrape each
// 5 s. After a minute the first line of status and page, and the log, name the cause; after a minute
// and a half the alert has fired, and no other.
func TestFaults(t *testing.T) {
	if !cluster.Soak() {
		t.Skip("takes a quarter of an hour")
	}
	cluster.Need(t, "prometheus", "prometheus")
	rows := make([]met, len(faults))
	t.Run("all", func(t *testing.T) {
		for i, f := range faults {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				m := f.meet(t)
				if !t.Failed() {
					rows[i] = m
				}
			})
		}
	})
	if *update {
		writeFaults(t, rows)
	}
}

func (f *fault) meet(t *testing.T) met {
	n := startNightly(t, f)
	cluster.StartLoad(t, n.Gateways, cluster.LoadOptions{Clients: 4})
	time.Sleep(usualFor)
	lines := make([]int, len(n.Gateways))
	for i, g := range n.Gateways {
		all, _ := g.Log.Lines()
		lines[i] = len(all)
	}
	began := time.Now()
	f.cause(t, n)
	var m met
	var fired []string
	look := func() {
		firing, err := n.Prometheus.Firing(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range firing {
			if !slices.Contains(fired, a.Name) {
				if fired = append(fired, a.Name); m.alert == "" {
					m.alert, m.after = a.Name+": "+a.Annotations["summary"], time.Since(began)
				}
			}
		}
	}
	for time.Since(began) < time.Minute {
		look()
		time.Sleep(time.Second)
	}
	m.status, m.page = firstTrouble(t, n.Gateways[0]), firstOnPage(t, n.Gateways[0])
	m.log = n.logged(f.logged, lines)
	for time.Since(began) < 90*time.Second {
		look()
		time.Sleep(time.Second)
	}
	if f.command != nil {
		f.follow(t, n)
	}
	f.judge(t, m, fired)
	return m
}

// judge complains of what is false, and of what is missing.
func (f *fault) judge(t *testing.T, m met, fired []string) {
	t.Logf("status: %s\npage: %s\nlog: %s\nalert: %s after %v; all: %v", m.status, m.page, m.log, m.alert, m.after, fired)
	if !regexp.MustCompile(f.said).MatchString(m.status) {
		t.Errorf("the first line of status is %q, want %s", m.status, f.said)
	}
	if !regexp.MustCompile(f.said).MatchString(m.page) {
		t.Errorf("the first line of the page is %q", m.page)
	}
	if f.logged != "" && m.log == "" {
		t.Errorf("no log has %q", f.logged)
	}
	if len(fired) == 0 || !slices.Contains(f.alerts, fired[0]) {
		t.Errorf("%v fired; want one of %v first", fired, f.alerts)
	}
	for _, a := range fired {
		if !slices.Contains(f.alerts, a) && !slices.Contains(f.also, a) {
			t.Errorf("%s fired, too", a)
		}
	}
}

// follow runs the command that the runbook gives.
func (f *fault) follow(t *testing.T, n *nightly) {
	args := append(slices.Clone(f.command), "--admin", "http://"+n.Gateways[0].Admin)
	if out, err := exec.CommandContext(t.Context(), cluster.Binary(t), args...).CombinedOutput(); err != nil {
		t.Errorf("kgate %s: %v\n%s", strings.Join(f.command, " "), err, out)
	}
}

func startNightly(t *testing.T, f *fault) *nightly {
	n := &nightly{Fleet: &Fleet{}, upstream: newFaulty(t)}
	o := cluster.Options{K: k, Upstream: n.upstream.site.URL(), Durable: true, Lease: 3 * time.Second}
	if f.options != nil {
		f.options(t, &o)
	}
	n.Cluster = cluster.Start(t, o)
	if o.Gateways == 2 { // the third has a small disk
		n.dir = n.DataDir("gw-3")
		mountDisk(t, n.dir, 8<<20)
		n.Launch(t)
		await(t, func() error { return n.AwaitReady(t.Context()) })
	}
	n.Prometheus = startPrometheus(t, n.Gateways, Classic, 5*time.Second, usualSoon(t, "rules.yaml"), usualSoon(t, "alerts.yaml"))
	return n
}

// usualSoon writes a copy of a file of rules in which an hour is a minute, and what is usual is what was
// so 100 s ago. Nothing else is faster.
func usualSoon(t *testing.T, name string) string {
	text := strings.NewReplacer("offset 5m", "offset 100s", "[1h]", "[1m]").Replace(read(t, filepath.Join(configs, name)))
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// firstTrouble is the first line of kgate status.
func firstTrouble(t *testing.T, g *cluster.Gateway) string {
	s, err := g.Status(t.Context())
	if err != nil {
		t.Error(err)
		return ""
	}
	return append(s.Troubles(), "")[0]
}

// firstOnPage is the first line of the status page that says what is wrong.
func firstOnPage(t *testing.T, g *cluster.Gateway) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.Admin+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	if found := regexp.MustCompile(`<p class="trouble">([^<]*)</p>`).FindSubmatch(text); found != nil {
		return html.UnescapeString(string(found[1]))
	}
	return ""
}

// logged returns the first line after the given ones, at any gateway, whose message has these words.
func (n *nightly) logged(words string, after []int) string {
	for i, g := range n.Gateways {
		lines, _ := g.Log.Lines()
		for _, line := range lines[min(after[i], len(lines)):] {
			var r cluster.Record
			if json.Unmarshal([]byte(line), &r) == nil && words != "" && strings.Contains(r.Text("msg"), words) {
				return strings.TrimSpace(r.Text("level") + " " + r.Text("msg"))
			}
		}
	}
	return ""
}

func (n *nightly) signal(t *testing.T, s syscall.Signal, gateways ...int) {
	for _, i := range gateways {
		if err := n.Gateways[i].Signal(s); err != nil {
			t.Fatal(err)
		}
		if s == syscall.SIGSTOP {
			t.Cleanup(func() { _ = n.Gateways[i].Signal(syscall.SIGCONT) })
		}
	}
}

// mountDisk puts a small disk where a gateway is going to have its data_dir.
func mountDisk(t *testing.T, dir string, size int) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=700", size), "kgate-test", dir).CombinedOutput(); err != nil {
		t.Skipf("needs to mount a disk (Linux, root): %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
}

func (n *nightly) fill(t *testing.T) {
	f, err := os.Create(filepath.Join(n.dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 7<<20+800<<10)); err != nil {
		t.Fatal(err)
	}
}

// hoard takes as many tickets as there are slots, and renews them.
func (n *nightly) hoard(t *testing.T) {
	var ids []string
	for range k {
		ids = append(ids, n.ticket(t, cluster.PoolName))
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, id := range ids {
				n.call(t, http.MethodPut, "/.kgate/tickets/"+id, nil)
			}
			select {
			case <-time.After(time.Second):
			case <-quit:
				return
			}
		}
	}()
	t.Cleanup(func() { close(quit); <-done })
}

// crowd has one client fill the queue of the first gateway.
func (n *nightly) crowd(t *testing.T) {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	cluster.StartLoad(t, n.Gateways[:1], cluster.LoadOptions{Clients: 200, Dial: from.DialContext})
}

// The modes of a faulty upstream.
const (
	well int32 = iota
	slow
	silent
	broken
)

// faulty is an upstream that does as it is told.
type faulty struct {
	site *site
	mode atomic.Int32
	stop func()
}

func newFaulty(t *testing.T) *faulty {
	f := &faulty{site: &site{addr: cluster.ReservePort(t)}}
	f.site.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hold := 50 * time.Millisecond
		switch f.mode.Load() {
		case slow:
			hold *= 15
		case silent:
			hold = time.Hour
		case broken:
			defer http.Error(w, "on demand", http.StatusInternalServerError)
		}
		select {
		case <-time.After(hold):
		case <-r.Context().Done():
		}
	})
	f.site.serve(t)
	f.stop = sync.OnceFunc(f.site.close)
	t.Cleanup(f.stop)
	return f
}

// writeFaults writes the page. What did not run, or failed, stays as it is there.
func writeFaults(t *testing.T, rows []met) {
	before, err := os.ReadFile(faultsPage)
	if err != nil {
		t.Log(err)
	}
	var b strings.Builder
	b.WriteString(`# What you see when something breaks

For each fault: the first line of ` + "`kgate status`" + ` and of the status page a minute later, the line in the log, and the alert that fires first, with the time since the
fault. [What to do](alerts.md). A test of the long runs causes each of them and writes this page: three gateways, k = 6, 12 clients, holds of 50 ms, a scrape every 5 s.

| fault | status and page | log | first alert | after |
|---|---|---|---|---|
`)
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	file := regexp.MustCompile(`/\S*/([^/ ]+)`)
	for i, m := range rows {
		if m.alert == "" {
			b.WriteString(regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(faults[i].name) + ` \|.*\n`).FindString(string(before)))
			continue
		}
		said := file.ReplaceAllString(address.ReplaceAllString(m.status, "10.0.1.1"), "$1")
		said = strings.ReplaceAll(strings.ReplaceAll(said, "http:10.0.1.1", "http://10.0.1.1"), "|", "\\|")
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.0f s |\n", faults[i].name, said, m.log, address.ReplaceAllString(m.alert, "10.0.1.1"), m.after.Seconds())
	}
	if err := os.WriteFile(faultsPage, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFaultsPage: the page has every fault that is caused, and each alert that it names is one.
func TestFaultsPage(t *testing.T) {
	page := read(t, faultsPage)
	var alerts []string
	for _, a := range Rules(t, "alerts.yaml") {
		alerts = append(alerts, a.Alert)
	}
	for _, f := range faults {
		if !strings.Contains(page, "\n| "+f.name+" | ") {
			t.Errorf("the page lacks %q: go test ./prometheus -run TestFaults$ -soak -update", f.name)
		}
		for _, a := range append(slices.Clone(f.alerts), f.also...) {
			if !slices.Contains(alerts, a) {
				t.Errorf("%s: there is no alert %s", f.name, a)
			}
		}
	}
}
