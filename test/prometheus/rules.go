package prometheus

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/goccy/go-yaml"
)

// configs is where the files that operators take are.
const configs = "../../configs/prometheus"

// Rule is one rule of a file of rules.
type Rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

// Rules reads one of the files in configs.
func Rules(t *testing.T, name string) []Rule {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(configs, name))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct{ Rules []Rule }
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var rules []Rule
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// hasty says what becomes of the times in a file of rules, and of two counts that
// take long to come about. The order matters.
var hasty = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`(expr: up == 0 .*\n +for:) 30s`), "$1 2000ms"}, // a busy machine misses some scrapes
	{regexp.MustCompile(`for: \d+[sm]\b`), "for: 500ms"},
	{regexp.MustCompile(`0\.05 \* 60`), "0.05 * 1"},
	{regexp.MustCompile(`kgate_replica_lag\) > 1000`), "kgate_replica_lag) > 0"},
	{regexp.MustCompile(`\[15m\]\)\) > 3`), "[4s])) > 0"},
	{regexp.MustCompile(`(kgate_hold_time_seconds\w*)\[1h\]`), "$1[4s]"},
	{regexp.MustCompile(`(kgate_oldest_hold_seconds|> 0)\) > 30`), "$1) > 2"},
	{regexp.MustCompile(`\[(30|45)s\]`), "[1s]"},
	{regexp.MustCompile(`offset 5m`), "offset 4s"},
	{regexp.MustCompile(`\[1m\]`), "[1s]"},
	{regexp.MustCompile(`\[2m\]`), "[2s]"},
	{regexp.MustCompile(`offset 2m`), "offset 2s"},
	{regexp.MustCompile(`\[\d+m\]`), "[4s]"},
}

// Hasten writes a copy of a file of rules in which minutes are seconds.
func Hasten(t *testing.T, name string) (path string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(configs, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hasty {
		data = h.from.ReplaceAll(data, []byte(h.to))
	}
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
