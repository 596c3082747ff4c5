package prometheus

import (
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/kgate/kgate/test/cluster"
)

// traceStore takes OTLP over HTTP, and shows a trace at /trace/ID, as Jaeger does: its spans,
// one a line, each after its gateway.
type traceStore struct {
	mu     sync.Mutex
	traces map[string][]string
}

func (s *traceStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := strings.CutPrefix(r.URL.Path, "/trace/"); ok {
		_, _ = fmt.Fprintln(w, strings.Join(s.traces[id], "\n"))
		return
	}
	body, err := gzip.NewReader(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	data, err := io.ReadAll(body)
	var sent collector.ExportTraceServiceRequest
	if err = errors.Join(err, proto.Unmarshal(data, &sent)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, of := range sent.GetResourceSpans() {
		gateway := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.instance.id" {
				gateway = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				id := hex.EncodeToString(span.GetTraceId())
				s.traces[id] = append(s.traces[id], gateway+" "+span.GetName())
			}
		}
	}
}

// TestExemplars: a Prometheus that keeps exemplars has the trace of a sampled request at
// its wait, under the label that Grafana makes a link of. The link leads to the whole trace, over
// both gateways that were asked in it.
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

	store := &traceStore{traces: make(map[string][]string)}
	jaeger := httptest.NewServer(store)
	t.Cleanup(jaeger.Close)
	c := cluster.Start(t, cluster.Options{
		Gateways: 2, K: 1, Upstream: newSite(t).URL(), Telemetry: fmt.Sprintf("otlp_endpoint: %q", jaeger.URL),
	})
	p := StartPrometheus(t, c.Gateways, Classic)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for _, g := range c.Gateways {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL()+"?hold=1ms", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}

	params := url.Values{"query": {`kgate_wait_time_seconds_bucket{outcome="admitted"}`}, "start": {stamp(time.Now().Add(-time.Minute))}, "end": {stamp(time.Now().Add(time.Minute))}}
	var id string
	await(t, func() error {
		var series []struct {
			Exemplars []struct{ Labels map[string]string }
		}
		if err := p.get(t.Context(), "/api/v1/query_exemplars", params, &series); err != nil {
			return err
		}
		for _, s := range series {
			for _, e := range s.Exemplars {
				if id = e.Labels[links[0].Name]; id == trace {
					return nil
				}
			}
		}
		return fmt.Errorf("no exemplar with %s=%s: %+v", links[0].Name, trace, series)
	})
	// Grafana's files write $$ for $, and its field for what the label says.
	const jaegerHere = "http://127.0.0.1:16686"
	link, isJaeger := strings.CutPrefix(strings.ReplaceAll(links[0].URL, "$${__value.raw}", id), jaegerHere)
	if !isJaeger {
		t.Fatalf("the link is %q", links[0].URL)
	}
	want := []string{"gw-1 GET", "gw-1 GET /", "gw-1 kgate.queue", "gw-2 GET", "gw-2 GET /", "gw-2 kgate.queue"}
	await(t, func() error { // spans are sent every few seconds
		res, err := client.Get(jaeger.URL + link)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		spans := strings.Split(strings.TrimSpace(string(text)), "\n")
		slices.Sort(spans)
		if err != nil || !slices.Equal(spans, want) {
			return fmt.Errorf("the link shows %q, %w", spans, err)
		}
		return nil
	})
}
