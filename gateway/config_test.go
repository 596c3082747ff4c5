package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kgate/kgate/internal/inside/fields"
	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/telemetry"
)

// filled are values for the fields of types that the root does not have.
var filled = []any{
	func(context.Context) ([]string, error) { return nil, nil },
	[]*url.URL{{Host: "x"}},
	[]proxy.Route{{Pool: "x"}},
	[]proxy.TCP{{Pool: "x"}},
	[]*proxy.ErrorPage{{}},
	func() []string { return nil }, trace.TracerProvider(noop.NewTracerProvider()),
	io.Discard, new(telemetry.Metrics), prometheus.Gatherer(prometheus.NewRegistry()), func(*telemetry.State) {},
	http.NotFoundHandler(), func() {},
}

// edited is what c adds to a node.
func edited(c *Config) node.Config {
	out := node.Config{Pools: make([]node.Pool, len(c.Pools)), Logger: slog.New(slog.DiscardHandler)}
	c.edit(&out)
	return out
}

// TestEveryFieldReachesTheNode: no field is forgotten on the way.
func TestEveryFieldReachesTheNode(t *testing.T) {
	elsewhere := map[string]bool{ // what Start itself uses
		"Config.Pools": true,
	}
	seen := 0
	for name, target := range map[string]func(*Config) any{
		"Config": func(c *Config) any { return c }, "Pool": func(c *Config) any { return &c.Pools[0] },
	} {
		empty := Config{Pools: make([]Pool, 1)}
		fields.Each(t, name, target(&empty), filled, func(path string, fill func(any)) {
			if elsewhere[path] {
				return
			}
			seen++
			c := Config{Pools: make([]Pool, 1)}
			fill(target(&c))
			if fmt.Sprintf("%#v", edited(&c)) == fmt.Sprintf("%#v", edited(&empty)) {
				t.Errorf("%s changes nothing", path)
			}
		})
	}
	if seen < 30 {
		t.Errorf("%d fields", seen)
	}
}
