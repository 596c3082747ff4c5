package kgate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/telemetry"
)

// Node is one gateway of a cluster, in this process. Its methods are safe for
// concurrent use.
type Node struct {
	node    *node.Node
	cfg     Config
	metrics collectorList

	stopping context.Context // ends when Close begins
	stop     context.CancelFunc
	wg       sync.WaitGroup // of supervise
	closing  sync.Once
	done     chan struct{}
	mu       sync.Mutex // guards err
	err      error
	goodbye  sync.Mutex // held while it leaves the cluster: nothing is closed meanwhile
	left     bool       // guarded by goodbye
}

// Start starts a node. It opens the node's ports and returns; it does not wait for
// other nodes: see [Node.Ready]. If ctx ends before Start returns, Start fails; after that
// ctx has no effect. The caller ends the node with [Node.Shutdown] or
// [Node.Close]. If Start fails, nothing stays open.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, inside(err)
	}
	inner := cfg.node()
	n := &Node{cfg: cfg, done: make(chan struct{})}
	if err := n.measure(&inner); err != nil {
		return nil, err
	}
	if n.node, err = node.Start(ctx, inner); err != nil {
		return nil, inside(err)
	}
	n.stopping, n.stop = context.WithCancel(context.Background())
	n.wg.Go(func() { n.supervise(n.node.Failed(), n.node.LeaveRequested()) })
	return n, nil
}

// measure makes the node's metrics, unless the program did.
func (n *Node) measure(inner *node.Config) (err error) {
	if inner.Metrics == nil {
		inner.Metrics, err = telemetry.New(&n.metrics, telemetry.Config{Gateway: inner.Name, Version: inner.Version, Embedded: true})
		if err != nil {
			return fmt.Errorf("kgate: %w", err)
		}
	}
	if inner.Gathered != nil {
		return nil
	}
	// The admin handler shows the metrics of the process, too. The program's own registry
	// has collectors for those already.
	registry := prometheus.NewRegistry()
	process := prometheus.WrapRegistererWith(prometheus.Labels{"gateway": inner.Name}, registry)
	err = errors.Join(registry.Register(&n.metrics), process.Register(collectors.NewGoCollector()),
		process.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	if err != nil {
		return fmt.Errorf("kgate: %w", err)
	}
	inner.Gathered = registry
	return nil
}

// supervise ends the node when it cannot go on, and when an operator asks it to leave.
func (n *Node) supervise(failed <-chan error, leave <-chan struct{}) {
	for {
		select {
		case err := <-failed:
			n.cfg.Logger.Error("the gateway cannot go on", slog.Any("error", err))
			_ = n.end(inside(err))
			return
		case <-leave:
			leave = nil
			if asked := n.cfg.Process.OnLeave; asked != nil {
				asked()
			} else {
				n.wg.Go(func() { _ = n.shutdown(n.stopping) })
			}
		case <-n.stopping.Done():
			return
		}
	}
}

// end closes the node, once, for a reason.
func (n *Node) end(why error) error {
	var err error
	n.closing.Do(func() {
		n.mu.Lock()
		n.err = why
		n.mu.Unlock()
		n.stop()
		n.node.BreakOff()
		n.goodbye.Lock()
		defer n.goodbye.Unlock()
		err = n.node.Close()
		close(n.done)
	})
	<-n.done
	return err
}

// Ready waits until the node takes part in the cluster and may admit requests. It
// returns the cause of ctx's end, with what was missing, or why the node has ended.
func (n *Node) Ready(ctx context.Context) error {
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.stopping, cancel)()
	missing := n.node.AwaitReady(waits)
	switch {
	case n.stopping.Err() != nil:
		<-n.done
		return n.Err()
	case missing != "":
		return fmt.Errorf("kgate: not ready: %s: %w", missing, context.Cause(ctx))
	default:
		return nil
	}
}

// NotReady says why the node may not admit requests now; empty: it may.
func (n *Node) NotReady() string {
	if n.stopping.Err() != nil {
		return "the node is closed"
	}
	_, reason := n.node.Ready()
	return reason
}

// told returns what the node inside has answered, as this package tells it.
func (n *Node) told(err error) error {
	if err != nil && n.stopping.Err() != nil {
		return ErrClosed
	}
	return inside(err)
}

// Done is closed when the node has ended: by Shutdown or Close, at an operator's
// request, or because it cannot go on. [Node.Err] returns which.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns nil while the node runs, then ErrClosed or the reason why it could not go
// on.
func (n *Node) Err() error {
	select {
	case <-n.done:
	default:
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// BeginDrain is for before the Shutdown of a server whose clients keep their connections. Waiting
// requests are refused with ErrDraining, and so is a new one for which no slot is free here at
// once; with Config.ServeWaiting both are served. Answers of [Node.Handler] and
// [Node.Middleware] end their connections. Call Shutdown afterwards.
func (n *Node) BeginDrain() { n.node.BeginDrain() }

// Drain takes the node out of service. New and waiting requests are refused with
// ErrDraining; with Config.ServeWaiting those that wait are served. It returns when no slot is in
// use here, or with ctx's error. The node stays in the cluster.
func (n *Node) Drain(ctx context.Context) error { return n.node.Drain(ctx) }

// Shutdown drains the node and leaves the cluster: the others have its slots at once.
// When ctx ends first, the slots in use are lost (see [Slot.Lost]), and Shutdown returns
// ctx's error, up to two seconds later: so long their holders may take to release them.
// Requests that are in flight over an http.Server end as they do without kgate: call
// Shutdown before the server's.
func (n *Node) Shutdown(ctx context.Context) error {
	defer n.wg.Wait()
	return n.shutdown(ctx)
}

func (n *Node) shutdown(ctx context.Context) error {
	if n.stopping.Err() != nil {
		<-n.done
		return ErrClosed
	}
	err := n.node.Drain(ctx)
	if !n.leave() {
		<-n.done
		return errors.Join(err, ErrClosed)
	}
	return errors.Join(err, n.end(ErrClosed))
}

// leave leaves the cluster, once. It returns false if Close was called, or the node cannot
// go on.
func (n *Node) leave() bool {
	n.goodbye.Lock()
	defer n.goodbye.Unlock()
	if n.stopping.Err() != nil {
		return false
	}
	if !n.left {
		n.left = true
		n.node.LeaveCluster()
	}
	return true
}

// Close ends the node at once and does not leave the cluster: the others get its slots
// when its lease has run out. Slots in use are lost. A Shutdown that is leaving the cluster
// ends first, within seconds.
func (n *Node) Close() error {
	defer n.wg.Wait()
	return n.end(ErrClosed)
}

// Reload applies the Pools, the Routes and all else in cfg that concerns requests to
// requests that arrive from now on. Those that wait keep their places. Names, addresses and
// the settings of Peers stay as they were at Start. On an error nothing has changed.
func (n *Node) Reload(cfg Config) error {
	if n.stopping.Err() != nil {
		return ErrClosed
	}
	cfg, err := cfg.reloaded(n.cfg)
	if err != nil {
		return inside(err)
	}
	return n.told(n.node.Reload(cfg.node()))
}

// SetPeerKey replaces [Peers.Key]: from now on the node uses and accepts these cluster
// keys. Open connections stay. To replace a key, add
// the new one as the second line on every node, then make it the first, then remove the
// old one.
func (n *Node) SetPeerKey(key []byte) error {
	secure, gossip, err := fromKey(key, n.cfg.Name)
	if err != nil {
		return inside(err)
	}
	return n.SetPeerTLS(secure, gossip)
}

// SetPeerTLS replaces [Peers.TLS] for new connections to other nodes, and
// [Peers.GossipKeys]. What is nil stays as it is. On an error nothing has changed.
func (n *Node) SetPeerTLS(cfg *tls.Config, gossipKeys [][]byte) error {
	if n.stopping.Err() != nil {
		return ErrClosed
	}
	return n.told(n.node.SetPeerTLS(cfg, gossipKeys))
}

// SetK changes a pool's k in the whole cluster if it is was now; if was is 0, in any case.
// It tries until ctx ends, and returns when this node has the new k.
func (n *Node) SetK(ctx context.Context, pool string, k, was int) error {
	return n.told(n.node.SetK(ctx, pool, k, was))
}

// SetRate changes how many bytes per second the pool's requests may move to clients and
// from clients, over all nodes; 0: no limit. It tries until ctx ends, and returns when no
// node uses the rate before.
func (n *Node) SetRate(ctx context.Context, pool string, down, up int64) error {
	return n.told(n.node.SetRate(ctx, pool, node.Rate{Down: down, Up: up}))
}

// PeerAddr returns the address at which the node listens for other nodes.
func (n *Node) PeerAddr() string { return n.node.PeerAddr().String() }

// GossipAddr returns the address that other nodes can Join.
func (n *Node) GossipAddr() string { return n.node.GossipAddr() }

// Handler returns the whole proxy: it finds the route of a request, waits for a slot of
// the route's pool and forwards the request to an upstream. Any http.Server may serve
// it; that of downstream.NewServer, which `kgate serve` uses, also limits what clients can
// hold.
func (n *Node) Handler() *proxy.Handler { return n.node.Handler() }

// Admin returns the status page, the API and the metrics, for operators. The page works
// behind http.StripPrefix. Changes require a token, see [Config.AdminTokens], or have to
// come from this machine, as all requests do that a proxy on this machine passes on.
func (n *Node) Admin() http.Handler { return n.node.Admin() }

// Stats of a pool at this node.
type Stats struct {
	// K is how many slots the pool has, over all nodes; 0: this node does not know the
	// pool yet.
	K int
	// InFlight and Waiting count the requests at this node.
	InFlight, Waiting int
}

// Stats returns what the node knows of a pool.
func (n *Node) Stats(pool string) Stats {
	s := n.node.Status(pool)
	return Stats{K: s.K, InFlight: s.InFlight, Waiting: s.Waiting}
}

// Middleware returns a middleware that admits requests to a pool before the next handler
// serves them. A request that is not admitted is answered with 503 or 429, Retry-After and a
// problem document. The next handler sees no Kgate-* header or trailer of the client: only
// gateways say those. Its context ends, with the cause ErrLost, when the
// slot is lost; [FromContext] has the slot. The slot is given back when the handler has
// returned, also by a panic, which passes, and when the connection that it may have
// hijacked is closed. A request of [Node.Transport] that still uses it then is ended first.
//
// The http.Server should have [ConnContext], or a client that leaves before the body
// of its request was read keeps its place in line, or its slot until the handler returns.
func (n *Node) Middleware(pool string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return n.node.Middleware(pool, next)
	}
}

// ConnContext is for http.Server.ConnContext: see [Node.Middleware].
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return downstream.ConnContext(ctx, c)
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

// Describe implements prometheus.Collector: a Node can be registered where the program
// registers its own metrics. Its metrics are the kgate_* ones, with the label gateway.
func (n *Node) Describe(to chan<- *prometheus.Desc) { n.metrics.Describe(to) }

// Collect implements prometheus.Collector.
func (n *Node) Collect(to chan<- prometheus.Metric) { n.metrics.Collect(to) }
