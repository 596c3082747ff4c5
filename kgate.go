package kgate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/kgate/kgate/internal/inside"
	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy/downstream"
)

// Node is one gateway of a cluster, in this process. Its methods are safe for
// concurrent use. Those of a Node that [Start] did not return fail, or panic if they cannot fail.
type Node struct {
	node    *node.Node
	cfg     Config
	metrics any // of package gateway

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
	return start(ctx, cfg, func(*node.Config) {})
}

func start(ctx context.Context, cfg Config, edit func(*node.Config)) (*Node, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, outside(err)
	}
	inner, leave := cfg.node(), make(chan struct{})
	inner.OnLeave = func() { close(leave) }
	edit(&inner)
	n := &Node{cfg: cfg, done: make(chan struct{})}
	if inside.Measure != nil {
		if n.metrics, err = inside.Measure(&inner); err != nil {
			return nil, err
		}
	}
	if n.node, err = node.Start(ctx, inner); err != nil {
		return nil, outside(err)
	}
	n.stopping, n.stop = context.WithCancel(context.Background())
	n.wg.Go(func() { n.supervise(n.node.Failed(), leave) })
	return n, nil
}

// supervise ends the node when it cannot go on, and when an operator asks it to leave.
func (n *Node) supervise(failed <-chan error, leave <-chan struct{}) {
	for {
		select {
		case err := <-failed:
			n.cfg.Logger.Error("the gateway cannot go on", slog.Any("error", err))
			_ = n.end(outside(err))
			return
		case <-leave:
			leave = nil
			n.wg.Go(func() { _ = n.shutdown(n.stopping) })
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
	if err := n.misused(ctx); err != nil {
		return err
	}
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

// stranger reports whether n is a Node that was not started.
func (n *Node) stranger() bool { return n == nil || n.node == nil }

// started returns the node inside, for methods that cannot fail.
func (n *Node) started() *node.Node {
	if n.stranger() {
		panic(errNotStarted)
	}
	return n.node
}

// misused returns what is wrong with a call, whatever the state of the node.
func (n *Node) misused(ctx context.Context) error {
	switch {
	case n.stranger():
		return errNotStarted
	case ctx == nil:
		return errNilContext
	default:
		return nil
	}
}

// check returns why nothing can be asked of the node.
func (n *Node) check(ctx context.Context) error {
	if err := n.misused(ctx); err != nil {
		return err
	}
	switch {
	case n.stopping.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil: // a caller that has gone would not Release
		return context.Cause(ctx)
	default:
		return nil
	}
}

// NotReady says why the node may not admit requests now; empty: it may.
func (n *Node) NotReady() string {
	switch {
	case n.stranger():
		return "the node was not started"
	case n.stopping.Err() != nil:
		return "the node is closed"
	}
	_, reason := n.node.Ready()
	return reason
}

// told returns what the node inside has answered, as this package tells it.
func (n *Node) told(err error) error {
	if err == nil {
		return nil
	}
	if ended := n.check(context.Background()); ended != nil {
		return ended
	}
	return outside(err)
}

// Done is closed when the node has ended: by Shutdown or Close, at an operator's
// request, or because it cannot go on. [Node.Err] returns which.
func (n *Node) Done() <-chan struct{} {
	n.started()
	return n.done
}

// Err returns nil while the node runs, then ErrClosed or the reason why it could not go
// on.
func (n *Node) Err() error {
	if n.stranger() {
		return errNotStarted
	}
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
// once; with Config.ServeWaiting both are served. Answers of [Node.Middleware] end their connections. Call Shutdown afterwards.
func (n *Node) BeginDrain() { n.started().BeginDrain() }

// Drain takes the node out of service. New and waiting requests are refused with
// ErrDraining; with Config.ServeWaiting those that wait are served. It returns when no slot is in
// use here, or with ctx's error. The node stays in the cluster.
func (n *Node) Drain(ctx context.Context) error {
	if err := n.misused(ctx); err != nil {
		return err
	}
	return n.node.Drain(ctx)
}

// Shutdown drains the node and leaves the cluster: the others have its slots at once.
// When ctx ends first, the slots in use are lost (see [Slot.Lost]), and Shutdown returns
// ctx's error, up to two seconds later: so long their holders may take to release them.
// Requests that are in flight over an http.Server end as they do without kgate: call
// Shutdown before the server's.
func (n *Node) Shutdown(ctx context.Context) error {
	if err := n.misused(ctx); err != nil {
		return err
	}
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
	if n.stranger() {
		return errNotStarted
	}
	defer n.wg.Wait()
	return n.end(ErrClosed)
}

// Reload applies the Pools and all else in cfg that concerns requests to
// requests that arrive from now on. Those that wait keep their places. Names, addresses and
// the settings of Peers stay as they were at Start. On an error nothing has changed.
func (n *Node) Reload(cfg Config) error { return n.reload(cfg, func(*node.Config) {}) }

func (n *Node) reload(cfg Config, edit func(*node.Config)) error {
	if err := n.check(context.Background()); err != nil {
		return err
	}
	cfg, err := cfg.reloaded(n.cfg)
	if err != nil {
		return outside(err)
	}
	inner := cfg.node()
	edit(&inner)
	return n.told(n.node.Reload(inner))
}

// SetPeerKey replaces [Peers.Key]: from now on the node uses and accepts these cluster
// keys. Open connections stay. To replace a key, add
// the new one as the second line on every node, then make it the first, then remove the
// old one.
func (n *Node) SetPeerKey(key []byte) error {
	if err := n.check(context.Background()); err != nil {
		return err
	}
	secure, err := fromKey(key, n.cfg.Name)
	if err != nil {
		return outside(err)
	}
	return n.told(n.node.SetPeerTLS(secure))
}

// SetK changes a pool's k in the whole cluster. It tries until ctx ends, and returns when this
// node admits requests by the new k, or 2 s after the cluster has agreed on it.
func (n *Node) SetK(ctx context.Context, pool string, k int) error {
	if err := n.check(ctx); err != nil {
		return err
	}
	return n.told(n.node.SetK(ctx, pool, k, 0))
}

// PeerAddr returns the address at which the node listens for other nodes, which they can Join.
func (n *Node) PeerAddr() string { return n.started().PeerAddr().String() }

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
	if n.stranger() {
		return Stats{}
	}
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
	inner := n.started()
	return func(next http.Handler) http.Handler { return inner.Middleware(pool, next) }
}

// ConnContext is for http.Server.ConnContext: see [Node.Middleware].
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return downstream.ConnContext(ctx, c)
}
