package prometheus

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

// TestFiles holds the files in configs/prometheus to promtool, and to each other.
func TestFiles(t *testing.T) {
	t.Run("promtool", func(t *testing.T) {
		cluster.Need(t, "promtool", "prometheus")
		const promtool = "promtool"
		for _, args := range [][]string{
			{"check", "config", "prometheus.yaml"},
			{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", "alerts.yaml"},
			{"test", "rules", "rules_test.yaml", "alerts_test.yaml"},
		} {
			cmd := exec.CommandContext(t.Context(), promtool, args...)
			cmd.Dir = configs
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
	})
	t.Run("alerts", func(t *testing.T) {
		runbook := read(t, "../../docs/alerts.md")
		tests := read(t, filepath.Join(configs, "alerts_test.yaml"))
		sections := regexp.MustCompile(`(?m)^## (Kgate\w+)$`).FindAllStringSubmatch(runbook, -1)
		alerts := Rules(t, "alerts.yaml")
		names := make(map[string]bool) // one cause can be critical and, where it is smaller, a warning
		for _, a := range alerts {
			names[a.Alert] = true
		}
		if len(alerts) == 0 || len(sections) != len(names) {
			t.Errorf("%d alerts, docs/alerts.md has sections for %d", len(names), len(sections))
		}
		for _, a := range alerts {
			url := "https://github.com/kgate/kgate/blob/main/docs/alerts.md#" + strings.ToLower(a.Alert)
			switch {
			case a.Annotations["runbook_url"] != url:
				t.Errorf("%s: the runbook is at %s", a.Alert, url)
			case !strings.Contains(runbook, "\n## "+a.Alert+"\n"):
				t.Errorf("%s has no section in docs/alerts.md", a.Alert)
			case a.Annotations["summary"] == "" || a.Annotations["description"] == "":
				t.Errorf("%s does not say what is the matter", a.Alert)
			case a.Labels["severity"] != "critical" && a.Labels["severity"] != "warning":
				t.Errorf("%s is neither critical nor a warning", a.Alert)
			case !strings.Contains(tests, `ALERTS{alertname="`+a.Alert+`",alertstate="firing",severity="`+a.Labels["severity"]+`"`):
				t.Errorf("%s never fires in alerts_test.yaml", a.Alert)
			}
		}
	})
	t.Run("metrics", func(t *testing.T) {
		documented := metrics(t)
		for _, r := range Rules(t, "rules.yaml") {
			documented[r.Record] = true
		}
		for _, name := range []string{"rules.yaml", "alerts.yaml"} {
			for _, r := range Rules(t, name) {
				for _, metric := range ours.FindAllString(r.Expr, -1) {
					if !documented[metric] {
						t.Errorf("%s%s asks for %s, which there is not", r.Record, r.Alert, metric)
					}
				}
			}
		}
	})
}

// ours finds the names of kgate's metrics and recorded series in an expression.
var ours = regexp.MustCompile(`\bkgate[_:][a-z0-9_:]+`)

// metrics returns the names of the series that docs/metrics.md lists.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `(kgate_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(read(t, "../../docs/metrics.md"), -1) {
		names[m[1]] = true
		if m[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				names[m[1]+suffix] = true
			}
		}
	}
	return names
}
