package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// interval is how often Prometheus scrapes. It evaluates the rules half as often, which costs most.
const interval = 250 * time.Millisecond

// Prometheus is a process that scrapes gateways, as one fleet.
type Prometheus struct {
	dir    string
	addr   string
	client *http.Client // for queries
}

// Histograms is which buckets a Prometheus scrapes.
type Histograms string

// The histograms.
const (
	Classic Histograms = "classic"
	Native  Histograms = "native"
)

// StartPrometheus starts a Prometheus with these rules, which is going to scrape
// the gateways. It ends with the test.
func StartPrometheus(t *testing.T, gateways []*cluster.Gateway, histograms Histograms, rules ...string) *Prometheus {
	t.Helper()
	return startPrometheus(t, place{}, gateways, histograms, interval, rules...)
}

// place is where a Prometheus runs, if not here.
type place struct {
	command []string // that another one is appended to
	host    string
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
}

// startPrometheus is StartPrometheus at a place, with a scrape so often.
func startPrometheus(t *testing.T, at place, gateways []*cluster.Gateway, histograms Histograms, interval time.Duration, rules ...string) *Prometheus {
	t.Helper()
	binary := "prometheus"
	p := &Prometheus{dir: t.TempDir(), addr: cluster.ReservePort(t), client: client}
	if at.dial != nil {
		p.addr = at.host + ":9090"
		p.client = &http.Client{Timeout: client.Timeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: at.dial}}
	}
	p.setTargets(t, gateways)
	names, err := json.Marshal(rules) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	config := p.write(t, "prometheus.yaml", fmt.Sprintf(`
global: {scrape_interval: %[1]v, scrape_timeout: %[1]v, evaluation_interval: %[2]v}
rule_files: %[3]s
scrape_configs:
  - job_name: kgate
    file_sd_configs: [{files: [targets.json]}]
`, interval, max(interval, time.Second), names))
	args := []string{
		"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(p.dir, "data"),
		"--web.listen-address=" + p.addr, "--log.level=warn", "--enable-feature=exemplar-storage",
	}
	if histograms == Native {
		args = append(args, "--enable-feature=native-histograms")
	}
	args = append(append(slices.Clone(at.command), binary), args...)
	process := cluster.StartProcess(t, args[0], args[1:]...)
	t.Cleanup(func() {
		if log := process.Log.Tail(20); t.Failed() || log != "" {
			t.Logf("log of Prometheus:\n%s", log)
		}
	})
	return p
}

// URL returns where it answers queries.
func (p *Prometheus) URL() string { return "http://" + p.addr }

// Transport reaches it.
func (p *Prometheus) Transport() http.RoundTripper { return p.client.Transport }

// Scrape says which gateways are scraped, and waits until they are and no others.
// Prometheus takes up to 5 s to notice.
func (p *Prometheus) Scrape(t *testing.T, gateways ...*cluster.Gateway) {
	t.Helper()
	p.setTargets(t, gateways)
	await(t, func() error {
		for _, expr := range []string{"count(up)", "sum(up)"} {
			v, err := p.Value(t.Context(), expr)
			if err != nil {
				return err
			}
			if v != float64(len(gateways)) {
				return fmt.Errorf("%s is %g, %d gateways are to be scraped", expr, v, len(gateways))
			}
		}
		return nil
	})
}

func (p *Prometheus) setTargets(t *testing.T, gateways []*cluster.Gateway) {
	t.Helper()
	targets := []string{}
	for _, g := range gateways {
		targets = append(targets, g.Admin)
	}
	data, err := json.Marshal([]map[string][]string{{"targets": targets}})
	if err != nil {
		t.Fatal(err)
	}
	next := p.write(t, "next.json", string(data))
	if err := os.Rename(next, filepath.Join(p.dir, "targets.json")); err != nil { // never half a file
		t.Fatal(err)
	}
}

func (p *Prometheus) write(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// await tries until it works, for up to a minute and a half.
func await(t *testing.T, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	if err := cluster.Await(ctx, try); err != nil {
		t.Fatal(err)
	}
}
