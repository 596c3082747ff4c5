package prometheus

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

var update = flag.Bool("update", false, "write docs/faults.md")

// faultsPage is what TestFaults writes.
const faultsPage = "../../docs/faults.md"

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
	rows := make([]met, len(Faults))
	t.Run("all", func(t *testing.T) {
		for i, f := range Faults {
			t.Run(f.Name, func(t *testing.T) {
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

func (f *Fault) meet(t *testing.T) met {
	n := StartNight(t, f, usualFor, 5*time.Second, usualSoon)
	lines := make([]int, len(n.Gateways))
	for i, g := range n.Gateways {
		all, _ := g.Log.Lines()
		lines[i] = len(all)
	}
	began := time.Now()
	n.Meet(t)
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
					for i, g := range n.Gateways {
						m.alert = strings.ReplaceAll(m.alert, g.Admin, fmt.Sprintf("10.0.0.%d:9080", i+1))
					}
				}
			}
		}
	}
	for time.Since(began) < time.Minute {
		look()
		time.Sleep(time.Second)
	}
	m.status, m.page = firstTrouble(t, n.Gateways[0]), firstOnPage(t, n.Prometheus.client, n.Gateways[0])
	m.log = n.logged(f.logged, lines)
	for time.Since(began) < 90*time.Second {
		look()
		time.Sleep(time.Second)
	}
	n.follow(t, fired)
	f.judge(t, m, fired)
	return m
}

// judge complains of what is false, and of what is missing.
func (f *Fault) judge(t *testing.T, m met, fired []string) {
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
func firstOnPage(t *testing.T, client *http.Client, g *cluster.Gateway) string {
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
func (n *Night) logged(words string, after []int) string {
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
	address := regexp.MustCompile(`(127\.0\.0\.1|10\.77\.2\.\d+):\d+`)
	file := regexp.MustCompile(`/\S*/([^/ ]+)`)
	for i, m := range rows {
		if m.alert == "" {
			b.WriteString(regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(Faults[i].Name) + ` \|.*\n`).FindString(string(before)))
			continue
		}
		said := file.ReplaceAllString(address.ReplaceAllString(m.status, "10.0.1.1"), "$1")
		said = strings.ReplaceAll(strings.ReplaceAll(said, "http:10.0.1.1", "http://10.0.1.1"), "|", "\\|")
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.0f s |\n", Faults[i].Name, said, m.log, address.ReplaceAllString(m.alert, "10.0.1.1"), m.after.Seconds())
	}
	b.WriteString(pictures())
	if err := os.WriteFile(faultsPage, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// pictures are the dashboard's first row at each fault, as TestDashboardAtFaults draws it.
func pictures() string {
	var b strings.Builder
	b.WriteString("\n## The dashboard's first row\n")
	for _, f := range Faults {
		picture := "pictures/now-" + f.Picture + ".webp"
		if _, err := os.Stat("../../docs/" + picture); err == nil {
			fmt.Fprintf(&b, "\n%s: `%s`\n\n![%s fires](%s)\n", strings.ToUpper(f.Name[:1])+f.Name[1:], f.Shows, f.Shows, picture)
		}
	}
	return b.String()
}

// TestFaultsPage: the page has the pictures that there are, every fault that is caused, and each alert that it names is one.
func TestFaultsPage(t *testing.T) {
	page := read(t, faultsPage)
	var alerts []string
	for _, a := range Rules(t, "alerts.yaml") {
		alerts = append(alerts, a.Alert)
	}
	if !strings.HasSuffix(page, pictures()) {
		t.Errorf("the pictures are not:\n%s", pictures())
	}
	for _, f := range Faults {
		if !strings.Contains(page, "\n| "+f.Name+" | ") {
			t.Errorf("the page lacks %q: go test ./prometheus -run TestFaults$ -soak -update", f.Name)
		}
		for _, a := range append(slices.Clone(f.alerts), f.also...) {
			if !slices.Contains(alerts, a) {
				t.Errorf("%s: there is no alert %s", f.Name, a)
			}
		}
	}
}
