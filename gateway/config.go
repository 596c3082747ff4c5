package gateway

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/telemetry"
	"github.com/kgate/kgate/telemetry/prom"
)

// Config of a [Gateway].
type Config struct {
	kgate.Config
	// Pools take the place of those of kgate.Config.
	Pools []Pool
	// Version of the program, for people. Default: the version of the module kgate.
	Version string
	// Routes of Handler, in order: the first that matches takes the request. None: all
	// requests go to the only pool, if that has upstreams.
	Routes []proxy.Route
	// TCP says which pool serves the connections of a listener of [downstream.Server.ServeTCP].
	TCP []proxy.TCP
	// Edge says how Handler treats its clients.
	Edge proxy.Edge
	// AdminTokens returns the tokens that changes over Admin require. They are the same on
	// every node: the first proves changes to other nodes, all are accepted. They must be
	// too long to guess. Nil: changes require none, and must come from this machine.
	AdminTokens func() []string
	// TracerProvider makes the spans of waits, and of Handler's requests; nil: no spans.
	TracerProvider trace.TracerProvider
	// SampleRatio is the share of Handler's requests to sample, from 0 to 1. A request that
	// brings a trace context is sampled if that says so.
	SampleRatio float64
	// AccessLog is the format of a line for each of Handler's requests; by default there is
	// none. AccessWriter takes the lines of proxy.AccessJSON; those of proxy.AccessStructured
	// go to Logger.
	AccessLog    proxy.AccessFormat
	AccessWriter io.Writer
	// Process is for a program that is only a gateway, such as `kgate serve`.
	Process Process
}

// Pool of slots, and the upstreams that its requests go to.
type Pool struct {
	kgate.Pool
	// Page is shown to browsers that wait for Middleware or Handler; nil: none.
	Page *proxy.Page
	// Tickets lets clients of Handler take tickets.
	Tickets bool
	// RateDown and RateUp are how many bytes per second a new pool's requests may move to
	// clients, and from clients, over all nodes. 0: no limit. A pool that the cluster knows
	// keeps its rates: see [Gateway.SetRate]. They apply to what Handler forwards, not to the
	// program's own handlers behind [kgate.Node.Middleware].
	RateDown, RateUp int64
	// RequestRate is how many bytes per second one request may move in either direction. 0:
	// no limit.
	RequestRate int64

	// Upstreams of the pool. Of several healthy upstreams the one with the fewest requests in flight
	// from this node is next. All may have a k of their own, as in http://10.0.2.1:8000#k=2: at
	// most 2 requests are in flight there, over all nodes, and each slot is for one of them: see
	// [kgate.Slot.Upstream] and [Gateway.SetUpstreamK]. Then K is their sum, and may be left out. A
	// name may mean several servers, by its addresses or SRV records, each with the same k, as in
	// http://llm.example.com:8000#k_each=2: the nodes follow which ones it has.
	Upstreams []*url.URL
	// Backup are upstreams that are used only while no other upstream can take the request: each is
	// unhealthy, or a connection to it fails at that moment.
	Backup []*url.URL
	// HoldIdle is how long a request may keep its slot without a byte in either direction;
	// 0: no limit.
	HoldIdle time.Duration
	// MinUpload is how many bytes per second of a request's body a client must send; 0: no
	// limit.
	MinUpload int
	// MinDownload is how many bytes per second of an answer a client must read; 0: no
	// limit.
	MinDownload int
	// Fence sends the slot's fence to the upstream, in the header Kgate-Fence.
	Fence bool
	// Health says when an upstream is unhealthy, Transport how upstreams are reached.
	Health    proxy.Health
	Transport proxy.Transport
}

// Process connects a node to a program that is only a node. Where the node is a part of a
// program, the zero value is right.
type Process struct {
	// Metrics are used in place of the node's own; then the node as a collector has none.
	Metrics *telemetry.Metrics
	// Gatherer is what Admin serves as /metrics. Nil: the node's metrics, Go's and those of
	// the process.
	Gatherer prometheus.Gatherer
	// State adds to the state that Metrics report.
	State func(*telemetry.State)
	// Reload is called when an operator asks for the configuration file to be read again. It
	// returns what has changed, each in a line. Nil: there is no file.
	Reload func(context.Context) ([]string, error)
	// Troubles returns what is wrong with the program's files, each in a sentence, for
	// operators. Nil: nothing is.
	Troubles func() []string
	// Profiles serves Admin's /debug/pprof/, to this machine only. Nil: none.
	Profiles http.Handler
	// OnLeave is called when an operator asks the node to leave, before that is answered: it
	// must not block. Nil: the node shuts down.
	OnLeave func()
}

// kgate returns the part of c that package kgate knows.
func (c *Config) kgate() kgate.Config {
	out := c.Config
	out.Pools = nil
	for i := range c.Pools {
		out.Pools = append(out.Pools, c.Pools[i].Pool)
	}
	return out
}

// edit adds what package kgate does not know.
func (c *Config) edit(out *node.Config) {
	if c.Version != "" {
		out.Version = c.Version
	}
	out.AdminTokens = c.AdminTokens
	p := &out.Proxy
	p.Routes, p.TCP, p.Edge, p.SampleRatio, p.AccessLog, p.AccessWriter = c.Routes, c.TCP, c.Edge, c.SampleRatio, c.AccessLog, c.AccessWriter
	if c.TracerProvider != nil {
		p.Tracer = c.TracerProvider.Tracer("github.com/kgate/kgate", trace.WithSchemaURL(telemetry.TraceSchema))
	}
	out.Metrics, out.State, out.Profiles = c.Process.Metrics, c.Process.State, c.Process.Profiles
	if c.Process.Gatherer != nil {
		out.Exposed = prom.Handler(c.Process.Gatherer, out.Logger)
	}
	out.Reload, out.Troubles = c.Process.Reload, c.Process.Troubles
	if c.Process.OnLeave != nil {
		out.OnLeave = c.Process.OnLeave
	}
	for i := range c.Pools {
		c.Pools[i].edit(&out.Pools[i])
	}
}

func (p *Pool) edit(out *node.Pool) {
	out.Rate = node.Rate{Down: p.RateDown, Up: p.RateUp}
	out.Upstreams, out.Backup, out.Health, out.Transport = p.Upstreams, p.Backup, p.Health, p.Transport
	out.HoldIdle, out.MinUpload, out.MinDownload, out.RequestRate = p.HoldIdle, p.MinUpload, p.MinDownload, p.RequestRate
	out.Fence, out.Tickets, out.Page = p.Fence, p.Tickets, p.Page
}
