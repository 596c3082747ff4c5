package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// Cluster is this gateway's part in the agreement on views. Its methods may be
// called by any number of goroutines.
//
// It puts together what the package consists of. Each part calls only those above it here.
type Cluster struct {
	*raftNode   // this gateway's raft server and what it has applied
	incarnation *incarnation
	peers       *peerClient  // asks other gateways
	prober      *prober      // dials members that may be gone
	leaders     *leaderWatch // knows whether there is a leader
	leases      *leaseServer // grants leases, as the leader
	guard       *rpcGuard    // judges raft's messages
	holder      *leaseHolder // renews this gateway's lease
	elections   *elections   // calls elections
	proposer    *proposer    // has commands committed, hands the lead over
	judge       *judge       // suspends and expires members, as the leader
	reconciler  *reconciler  // starts the cluster; lets gateways in, as the leader
	control     *http.Server // answers other gateways

	closed func() error
}

// Start takes part in a cluster: it goes on with the state in DataDir, starts
// a cluster as BootstrapExpect says, or waits to be let in. It returns without
// waiting for any of that; see [Cluster.Ready]. The context bounds only Start
// itself. Close ends everything that Start began; Start closes the stream
// layers if it fails.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	n := &raftNode{
		config:  config,
		machine: newMachine(config.Logger),
		up:      make(chan struct{}),
		broken:  make(chan error, 1),
	}
	n.closing, n.cancel = context.WithCancel(context.Background())
	n.roll = rollCall{closing: n.closing, over: make(chan struct{})}
	n.disk.config, n.disk.lease = config, n.lease
	n.addresses.self, n.addresses.at = config.Name, config.PeerAddr
	n.addresses.servers, n.addresses.view, n.addresses.failed = n.servers, n.View, make(map[string][]string)
	n.addresses.note(config.Discovery.Members())
	c := newCluster(n)
	c.closed = sync.OnceValue(c.shutdown)
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.closed())
	}
	return c, nil
}

// newCluster puts the parts together.
func newCluster(n *raftNode) *Cluster {
	i := newIncarnation(n.config.Boot, bootNow)
	peers := newPeerClient(n, i)
	prober := newProber(n, peers)
	leaders := &leaderWatch{raftNode: n, peers: peers, prober: prober}
	leases := newLeaseServer(n, leaders, i)
	proposer := &proposer{raftNode: n, peers: peers, leaders: leaders}
	judge := &judge{raftNode: n, incarnation: i, peers: peers, prober: prober, leases: leases, proposer: proposer}
	return &Cluster{
		raftNode: n, incarnation: i, peers: peers, prober: prober, leaders: leaders, leases: leases,
		guard:     &rpcGuard{n},
		holder:    &leaseHolder{raftNode: n, incarnation: i, peers: peers, leaders: leaders, leases: leases},
		elections: &elections{raftNode: n, peers: peers, prober: prober, leaders: leaders},
		proposer:  proposer, judge: judge,
		reconciler: newReconciler(n, i, peers, leases, judge, proposer),
	}
}

func (c *Cluster) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	transport := func(over *raft.NetworkTransport) raft.Transport {
		return retryTransport{over, c.raftNode, new(sync.Map), new(sync.Map)}
	}
	if err := c.raftNode.start(c.guard.admit, c.guard.guard, transport); err != nil {
		return err
	}
	c.control = c.newControl()
	c.wg.Go(func() { _ = c.control.Serve(c.config.Control) }) // always ErrServerClosed
	for _, loop := range []func(){
		c.watchLeader, c.leases.rounds, c.holder.run, c.elections.comeBack, c.elections.run, c.judge.takeLeads, c.judge.watch, c.reconciler.run,
	} {
		c.wg.Go(loop)
	}
	return nil
}

// shutdown undoes start, however far it came.
func (c *Cluster) shutdown() error {
	err := c.stop()
	if c.control != nil {
		err = errors.Join(err, c.control.Close())
		c.peers.client.CloseIdleConnections()
	} else {
		err = errors.Join(err, c.config.Control.Close())
	}
	c.wg.Wait()
	if c.storage != nil {
		err = errors.Join(err, c.storage.close())
	}
	return err
}

// Close stops taking part, without telling anybody: to the others this
// gateway is lost. It returns when everything has ended.
func (c *Cluster) Close() error { return c.closed() }

// Failed yields an error when this gateway cannot take part any more: its disk is
// full, say. It follows no views from then on, and others would wait for it, so
// its process should end.
func (c *Cluster) Failed() <-chan error { return c.broken }

// Self returns the Node of this gateway's newest incarnation, if the newest
// view has it.
func (c *Cluster) Self() (kmutex.Node, bool) { return c.incarnation.in(c.View(), c.config.Name) }

// Ready waits until this gateway is in the view.
func (c *Cluster) Ready(ctx context.Context) error {
	return c.await(ctx, func(*View) bool { _, in := c.Self(); return in })
}

// Leave takes this gateway out of the view, hands the lead on if it has it, and
// closes the cluster, also if ctx ends or an error occurs before. The last
// gateway tells its disk: when it starts again, nothing is owed from before.
func (c *Cluster) Leave(ctx context.Context) error {
	c.leaving.Store(true)
	return errors.Join(c.depart(ctx), c.Close())
}

func (c *Cluster) depart(ctx context.Context) error {
	node, in := c.Self()
	if !in {
		return nil
	}
	if len(c.View().Members) == 1 {
		if !c.leads() {
			return nil // it was one of several that are leaving, and nobody leads them
		}
		return c.proposer.applyHere(views.Command{Remove: &views.Remove{Node: node}})
	}
	if err := c.proposer.handOver(ctx); err != nil {
		return fmt.Errorf("membership: leave: %w", err)
	}
	if err := c.proposer.propose(ctx, views.Command{Remove: &views.Remove{Node: node}}); err != nil {
		return fmt.Errorf("membership: leave: %w", err)
	}
	return nil
}

// TicketsMark returns what SetTicketsMark has written to DataDir, empty if nothing.
func (c *Cluster) TicketsMark() string { return c.storage.ticketsMark() }

// SetTicketsMark writes the mark of the tickets that the owner keeps in DataDir.
func (c *Cluster) SetTicketsMark(mark string) error { return c.storage.setTicketsMark(mark) }

// Standing returns the present one. It is cheap enough for every admission and
// every write. It lapses by itself: compare Until with the clock.
func (c *Cluster) Standing() Standing { return *c.incarnation.standing.Load() }

// Rejoin lets a gateway come back whose incarnation was lost or whose lease has
// lapsed. The caller vouches that nothing which the incarnation had is in flight
// any more: every connection to an upstream is closed. It does nothing while the
// incarnation may still get a standing, so it may be called at every change.
func (c *Cluster) Rejoin() {
	if !c.incarnation.rejoin() {
		return
	}
	boot, voided := c.incarnation.current()
	c.config.Logger.Info("rejoining as a new incarnation", slog.String("boot", boot), slog.Uint64("voided_node", uint64(voided)))
	c.machine.touch() // the renewing goroutine tells gossip
}
