package gateway

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kgate/kgate/internal/inside"
	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/telemetry"
	"github.com/kgate/kgate/telemetry/prom"
)

// Nodes of programs that import this package have metrics, whoever starts them: those of package
// kgate alone do without Prometheus.
func init() { inside.Measure = measure }

// measure makes a node's metrics, unless the program did, and returns their collector.
func measure(inner *node.Config) (_ any, err error) {
	l := new(collectorList)
	if inner.Metrics == nil {
		inner.Metrics, err = prom.New(l, prom.Config{Config: telemetry.Config{Version: inner.Version}, Gateway: inner.Name, Embedded: true})
		if err != nil {
			return nil, fmt.Errorf("kgate: %w", err)
		}
	}
	if inner.Exposed != nil {
		return l, nil
	}
	// The admin handler shows the metrics of the process, too. The program's own registry
	// has collectors for those already.
	registry := prometheus.NewRegistry()
	process := prometheus.WrapRegistererWith(prometheus.Labels{"gateway": inner.Name}, registry)
	err = errors.Join(registry.Register(l), process.Register(collectors.NewGoCollector()),
		process.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	if err != nil {
		return nil, fmt.Errorf("kgate: %w", err)
	}
	inner.Exposed = prom.Handler(registry, inner.Logger)
	return l, nil
}

// collectorList is a registry that only remembers its collectors, and a collector of all
// of them.
type collectorList []prometheus.Collector

// Register implements prometheus.Registerer.
func (l *collectorList) Register(c prometheus.Collector) error {
	*l = append(*l, c)
	return nil
}

// MustRegister implements prometheus.Registerer.
func (l *collectorList) MustRegister(all ...prometheus.Collector) { *l = append(*l, all...) }

// Unregister implements prometheus.Registerer: nothing ever is.
func (*collectorList) Unregister(prometheus.Collector) bool { return false }

// Describe implements prometheus.Collector.
func (l *collectorList) Describe(to chan<- *prometheus.Desc) {
	for _, c := range *l {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (l *collectorList) Collect(to chan<- prometheus.Metric) {
	for _, c := range *l {
		c.Collect(to)
	}
}
