package prometheus

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/kgate/kgate/test/cluster"
)

// TestComposeNames checks configs/compose.yaml: files are there, ports are given
// once and on loopback, images have a version, and the parts that know of each
// other use the same names.
func TestComposeNames(t *testing.T) {
	c := ReadCompose(t)
	var ports, gateways []string
	for name, s := range c.Services {
		for _, p := range s.Ports {
			host := p[:strings.LastIndex(p, ":")]
			if slices.Contains(ports, host) || !strings.HasPrefix(host, "127.0.0.1:") {
				t.Errorf("%s: port %s is taken, or others than this machine reach it", name, p)
			}
			ports = append(ports, host)
		}
		for _, v := range s.Volumes {
			exists(t, strings.Split(v, ":")[0])
		}
		for _, f := range s.Configs {
			if c.Configs[f.Source].Content == "" {
				t.Errorf("%s: there is no %s", name, f.Source)
			}
		}
		if s.Build != nil {
			exists(t, filepath.Join(s.Build.Context, s.Build.Dockerfile))
		} else if _, version, _ := strings.Cut(s.Image, ":"); version == "" || version == "latest" {
			t.Errorf("%s: image %s has no version", name, s.Image)
		}
		if strings.HasPrefix(s.Command, "serve ") {
			gateways = append(gateways, name+":9080")
		}
	}
	slices.Sort(gateways)

	var prometheus struct {
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	decode(t, "prometheus/prometheus.yaml", &prometheus)
	if targets := prometheus.ScrapeConfigs[0].StaticConfigs[0].Targets; !slices.Equal(targets, gateways) {
		t.Errorf("Prometheus scrapes %v, the gateways are %v", targets, gateways)
	}
	var sources struct{ Datasources []struct{ URL string } }
	decode(t, "grafana/provisioning/datasources/prometheus.yaml", &sources)
	if url := sources.Datasources[0].URL; url != "http://prometheus:9090" {
		t.Errorf("Grafana asks %s", url)
	}
	var dashboards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	decode(t, "grafana/provisioning/dashboards/kgate.yaml", &dashboards)
	folder := dashboards.Providers[0].Options.Path
	if !slices.Contains(c.Services["grafana"].Volumes, "./grafana/"+path.Base(folder)+":"+folder+":ro") {
		t.Errorf("nothing is mounted where Grafana looks for dashboards: %s", folder)
	}
}

// decode reads a file below configs.
func decode(t *testing.T, file string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join("../../configs", file))), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func exists(t *testing.T, file string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("../../configs", file)); err != nil {
		t.Error(err)
	}
}

// TestComposeUp runs configs/compose.yaml: its services find each other, the clients
// wait, the slots are busy, Prometheus sees it, and no alert fires.
func TestComposeUp(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	cluster.Need(t, "promtool", "prometheus")
	const promtool = "promtool"
	on := ReadCompose(t).Up(t)
	ask := func(expr string) error {
		args := append(slices.Clone(on[1:]), promtool, "query", "instant", "-o", "json", "http://127.0.0.1:9090", expr)
		out, err := exec.CommandContext(t.Context(), on[0], args...).Output()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", expr, err, out)
		}
		var samples []any
		if err := json.Unmarshal(out, &samples); err != nil {
			return fmt.Errorf("%s: %w", expr, err)
		}
		if len(samples) == 0 {
			return errors.New(expr + ": not so")
		}
		return nil
	}
	await(t, func() error {
		return ask(`sum(up) == 3 and sum(kgate:utilisation:ratio > 0.5) and sum(kgate:spread:seconds > 0) and on() absent(ALERTS{alertstate="firing"})`)
	})
}
