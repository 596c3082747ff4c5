package main

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/config"
)

// spanOf is a span and the gateway that sent it.
type spanOf struct {
	*otlp.Span
	gateway string
}

// otlpServer takes OTLP over HTTP and keeps the spans.
type otlpServer struct {
	url string

	mu    sync.Mutex
	spans []spanOf
}

func startOTLP(t *testing.T) *otlpServer {
	t.Helper()
	o := new(otlpServer)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		data, err := io.ReadAll(body)
		req := new(collector.ExportTraceServiceRequest)
		if err != nil || proto.Unmarshal(data, req) != nil {
			t.Errorf("not OTLP: %v", err)
			return
		}
		o.keep(req)
	}))
	t.Cleanup(s.Close)
	o.url = s.URL
	return o
}

func (o *otlpServer) keep(req *collector.ExportTraceServiceRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, resource := range req.GetResourceSpans() {
		gateway := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.instance.id" {
				gateway = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				o.spans = append(o.spans, spanOf{s, gateway})
			}
		}
	}
}

// count returns how many spans of that name have come from a gateway.
func (o *otlpServer) count(gateway, name string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans {
		if s.gateway == gateway && s.GetName() == name {
			n++
		}
	}
	return n
}

// find returns a gateway's only span of that name.
func (o *otlpServer) find(t *testing.T, gateway, name string) spanOf {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []spanOf
	for _, s := range o.spans {
		if s.gateway == gateway && s.GetName() == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %s of %s", len(found), name, gateway)
	}
	return found[0]
}

func number(s spanOf, key string) int64 {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetIntValue()
		}
	}
	return -1
}

// startPair starts two gateways of one cluster, with one pool of k = 1.
func startPair(t *testing.T, upstream string, change func(*config.Config)) (first, second *server) {
	t.Helper()
	first = startSingle(t, upstream, func(c *config.Config) { c.Node.Name = "gw-1"; change(c) })
	second = startSingle(t, upstream, func(c *config.Config) {
		c.Node.Name, c.Cluster.Join = "gw-2", []string{first.node.PeerAddr()}
		change(c)
	})
	return first, second
}

// TestOneTraceOverTwoGateways: a client asks both gateways in one trace. The
// second request waits at its gateway for the slot that the first has at the
// other. The trace goes from the client over the waits to the upstream.
func TestOneTraceOverTwoGateways(t *testing.T) {
	const (
		trace  = "0af7651916cd43dd8448eb211c80319c"
		client = "b7ad6b7169203331"
	)
	o := startOTLP(t)
	type visit struct{ parent, path string }
	visits, leave := make(chan visit, 10), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		visits <- visit{r.Header.Get("Traceparent"), r.URL.Path}
		<-leave
	}))
	t.Cleanup(upstream.Close)
	first, second := startPair(t, upstream.URL, func(c *config.Config) {
		c.Telemetry.OTLPEndpoint, c.Telemetry.SampleRatio = o.url, 0
	})

	header := http.Header{"Traceparent": {"00-" + trace + "-" + client + "-01"}}
	var wg sync.WaitGroup
	wg.Go(func() { get(t, first, header) })
	one := <-visits
	wg.Go(func() { get(t, second, header) })
	await(t, "the second to wait", func() bool { return second.node.Stats("default").Waiting == 1 })
	leave <- struct{}{}
	two := <-visits
	leave <- struct{}{}
	wg.Wait()
	for _, gateway := range []string{"gw-1", "gw-2"} {
		await(t, "the spans of "+gateway, func() bool { return o.count(gateway, "GET /") > 0 }) // sent last
	}

	for gateway, v := range map[string]visit{"gw-1": one, "gw-2": two} {
		server, queue, up := o.find(t, gateway, "GET /"), o.find(t, gateway, "kgate.queue"), o.find(t, gateway, "GET")
		for _, s := range []spanOf{server, queue, up} {
			if got := hex.EncodeToString(s.GetTraceId()); got != trace {
				t.Errorf("%s: %s is of trace %s", gateway, s.GetName(), got)
			}
		}
		if got := hex.EncodeToString(server.GetParentSpanId()); got != client {
			t.Errorf("%s: the request is below %s, not the client's span", gateway, got)
		}
		for _, child := range []spanOf{queue, up} {
			if string(child.GetParentSpanId()) != string(server.GetSpanId()) {
				t.Errorf("%s: %s is not below the request", gateway, child.GetName())
			}
		}
		if want := "00-" + trace + "-" + hex.EncodeToString(up.GetSpanId()) + "-01"; v.parent != want {
			t.Errorf("%s: the upstream got %q, want %q", gateway, v.parent, want)
		}
	}
	queue, released := o.find(t, "gw-2", "kgate.queue"), o.find(t, "gw-1", "GET")
	if queue.GetEndTimeUnixNano() < released.GetStartTimeUnixNano() || number(queue, "kgate.position") != 1 || number(queue, "kgate.token") != 0 {
		t.Errorf("the wait at the second gateway: %v", queue)
	}
	// The slot came from the request at the first gateway: the traces are linked.
	holder := o.find(t, "gw-1", "GET /")
	if links := queue.GetLinks(); len(links) != 1 || string(links[0].GetSpanId()) != string(holder.GetSpanId()) || string(links[0].GetTraceId()) != string(holder.GetTraceId()) {
		t.Errorf("the wait at the second gateway links to %v, want the first one's request", links)
	}
	if a, b := number(o.find(t, "gw-1", "kgate.queue"), "kgate.serial"), number(queue, "kgate.serial"); a <= 0 || b <= a {
		t.Errorf("admissions %d and %d do not follow each other", a, b)
	}
}

// TestCollectorAwayCostsNoRequest: traces are on, and there is no collector. The scrape has the traces as
// exemplars of the waits.
func TestCollectorAwayCostsNoRequest(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	n := startSingle(t, upstream.URL, func(c *config.Config) {
		c.Telemetry.OTLPEndpoint, c.Telemetry.SampleRatio = "http://127.0.0.1:1", 1
	})
	for range 20 {
		if a := get(t, n, nil); a.status != http.StatusOK {
			t.Errorf("status %d", a.status)
		}
	}
	exemplar := regexp.MustCompile(`(?m)^kgate_wait_time_seconds_bucket\{.*# \{trace_id="[0-9a-f]{32}"\}`)
	if text := scrape(t, n, "application/openmetrics-text"); !exemplar.MatchString(text) {
		t.Errorf("no exemplar in\n%s", text)
	}
}

// scrape returns what a gateway's /metrics has in a form.
func scrape(t *testing.T, n *server, accept string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.adminAddr.String()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMirroredNames: metrics name successors and upstreams as the configuration
// does.
func TestMirroredNames(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	first, _ := startPair(t, upstream.URL, func(*config.Config) {})
	res, err := http.Post("http://"+first.adminAddr.String()+admin.TicketsPath, "application/json", strings.NewReader(`{"pool":"default"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		t.Fatal(res.Status)
	}
	text := scrape(t, first, "text/plain")
	for _, want := range []string{
		`kgate_replica_lag{gateway="gw-1",successor="gw-2"} 0`, `kgate_upstream_healthy{gateway="gw-1",pool="default",upstream="` + upstream.URL + `"} 1`,
		`kgate_inversions_total{gateway="gw-1",pool="default"} 0`, `kgate_peer_link_up{gateway="gw-1",peer="gw-2"} 1`,
		`kgate_members{gateway="gw-1",status="lost"} 0`, `kgate_voters{gateway="gw-1"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// await polls: what it waits for is another process's doing.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
