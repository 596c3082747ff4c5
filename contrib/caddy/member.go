package kgate

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kgate/kgate/gateway"
)

// members are the nodes of this process, by App.key. Caddy runs the old configuration and
// the new one side by side while it reloads, and both use the same node.
var members = caddy.NewUsagePool()

const defaultShutdownTimeout = 30 * time.Second

// member is a node and the configurations that use it.
type member struct {
	node *gateway.Gateway

	mu       sync.Mutex
	apps     []*App // the newest last
	key      []byte // Peers.Key in use
	patience time.Duration
	started  *App // with which the node was started
}

// newMember starts the node of a configuration.
func newMember(a *App) (*member, error) {
	m := &member{key: a.cfg.Peers.Key}
	cfg := a.cfg
	cfg.Pools = poolsOf(a)
	cfg.AdminTokens = m.tokens
	var err error
	m.node, err = gateway.Start(a.ctx, cfg)
	return m, err
}

// follow has the node serve as a says. The pools of the configuration before stay
// until it is forgotten: its servers still take requests.
func (m *member) follow(a *App) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.reload(append(slices.Clone(m.apps), a)); err != nil {
		return err
	}
	if key := a.cfg.Peers.Key; !bytes.Equal(key, m.key) && len(key) > 0 && len(m.key) > 0 {
		if err := m.node.SetPeerKey(key); err != nil {
			_ = m.reload(m.apps)
			return err
		}
		m.key = key
	}
	if first := m.started; first != nil && !a.sameNode(first) {
		a.cfg.Logger.Warn("settings that concern other nodes have changed: restart Caddy to use them; only a new key is used at once")
	} else if first == nil {
		m.started = a
	}
	m.apps, m.patience = append(m.apps, a), cmp.Or(time.Duration(a.ShutdownTimeout), defaultShutdownTimeout)
	return nil
}

// forget has the node serve as if a had not been.
func (m *member) forget(a *App) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apps = slices.DeleteFunc(m.apps, func(b *App) bool { return a == b })
	if len(m.apps) > 0 {
		if err := m.reload(m.apps); err != nil {
			a.cfg.Logger.Error("the node stays with pools of a configuration that is gone", slog.Any("error", err))
		}
	}
}

// reload has the node serve as the newest of apps says, and know the others' pools.
func (m *member) reload(apps []*App) error {
	if len(apps) == 0 {
		return nil
	}
	slices.Reverse(apps)
	defer slices.Reverse(apps)
	cfg := apps[0].cfg
	cfg.Pools = poolsOf(apps...)
	return m.node.Reload(cfg)
}

// poolsOf returns the pools of apps. The first that describes one counts.
func poolsOf(apps ...*App) (out []gateway.Pool) {
	seen := make(map[string]bool)
	for _, a := range apps {
		for name, p := range a.pools {
			if !seen[name] {
				seen[name] = true
				out = append(out, gateway.Pool{Pool: p.config()})
			}
		}
	}
	return out
}

// tokens are those of all configurations, the newest's first.
func (m *member) tokens() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range slices.Backward(m.apps) {
		if a.token != "" {
			all = append(all, a.token)
		}
	}
	return all
}

// Destruct implements caddy.Destructor.
func (m *member) Destruct() error {
	ctx, cancel := context.WithTimeout(context.Background(), m.patience)
	defer cancel()
	return m.node.Shutdown(ctx)
}

// metrics are those of the node that has this key in members, if there is one. Caddy's
// admin endpoint shows the registry of a configuration before it starts that, and goes on
// to do so if it is refused: then the node is still the one of the configuration before.
type metrics struct{ key string }

// Describe implements prometheus.Collector: what comes is not known beforehand.
func (metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m metrics) Collect(to chan<- prometheus.Metric) {
	var found *member
	members.Range(func(key, value any) bool {
		if key == m.key {
			found, _ = value.(*member) // nil while it starts
		}
		return key != m.key
	})
	if found != nil {
		gateway.Collector(found.node.Node).Collect(to)
	}
}
