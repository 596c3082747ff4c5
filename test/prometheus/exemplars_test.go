package prometheus

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/kgate/kgate/test/cluster"
)

// TestExemplars: a Prometheus that keeps exemplars has the trace of a sampled request at
// its wait, under the label that Grafana makes a link of.
func TestExemplars(t *testing.T) {
	t.Parallel()
	cluster.Need(t, "prometheus", "prometheus")
	var sources struct {
		Datasources []struct {
			JSONData struct {
				ExemplarTraceIDDestinations []struct {
					Name, URL string
				} `yaml:"exemplarTraceIdDestinations"`
			} `yaml:"jsonData"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(configs, "../grafana/provisioning/datasources/prometheus.yaml"))), &sources); err != nil {
		t.Fatal(err)
	}
	links := sources.Datasources[0].JSONData.ExemplarTraceIDDestinations
	if len(links) != 1 || links[0].URL == "" {
		t.Fatalf("Grafana links exemplars to %+v", links)
	}

	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // it takes everything
	t.Cleanup(collector.Close)
	c := cluster.Start(t, cluster.Options{
		Gateways: 1, K: 1, Upstream: newSite(t).URL(), Telemetry: fmt.Sprintf("otlp_endpoint: %q", collector.URL),
	})
	p := StartPrometheus(t, c.Gateways, Classic)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Gateways[0].URL()+"?hold=1ms", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()

	params := url.Values{"query": {`kgate_wait_time_seconds_bucket{outcome="admitted"}`}, "start": {stamp(time.Now().Add(-time.Minute))}, "end": {stamp(time.Now().Add(time.Minute))}}
	await(t, 20*time.Second, func() error {
		var series []struct {
			Exemplars []struct{ Labels map[string]string }
		}
		if err := p.get(t.Context(), "/api/v1/query_exemplars", params, &series); err != nil {
			return err
		}
		for _, s := range series {
			for _, e := range s.Exemplars {
				if e.Labels[links[0].Name] == trace {
					return nil
				}
			}
		}
		return fmt.Errorf("no exemplar with %s=%s: %+v", links[0].Name, trace, series)
	})
}
