package membership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/membership/raftfile"
	"github.com/kgate/kgate/internal/oncelog"
	"github.com/kgate/kgate/kmutex"
)

// Cluster is this gateway's part in the agreement on views. Its methods may be
// called by any number of goroutines.
type Cluster struct {
	config  Config
	machine *machine
	storage *storage
	stream  *raftStream
	trans   *raft.NetworkTransport
	raft    *raft.Raft
	control *http.Server
	client  *http.Client
	once    oncelog.Limit
	silent  silences

	disk        writeTimes
	roll        rollCall
	incarnation *incarnation
	leases      *leaseServer
	prober      *prober
	outsiders   outsiders

	// broken tells that the disk does not take what has been agreed on.
	broken chan error
	// up is closed when raft is set.
	up      chan struct{}
	closing context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	closed  func() error
	leaving atomic.Bool
	// handsOver are the servers that were told to take over the lead.
	handsOver atomic.Pointer[handsOver]
	// addresses of the gateways that gossip sees alive, by name.
	addresses atomic.Pointer[map[string]string]

	// ops is held while raft's configuration is changed, so that a departure
	// and the leader's loop do not undo each other's work.
	ops sync.Mutex
	// renewed is the newest renewal of this gateway's lease that another one granted; asked
	// is the first that was sent to the present leader.
	renewed, asked atomic.Pointer[renewal]

	idMu         sync.Mutex
	bootstrapped []bootstrapServer

	problemMu sync.Mutex
	trouble   error
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
	c := &Cluster{
		config:  config,
		machine: newMachine(config.Logger),
		up:      make(chan struct{}),
		roll:    rollCall{over: make(chan struct{})},
		broken:  make(chan error, 1),

		incarnation: newIncarnation(config.Boot, bootNow),
		prober:      newProber(),
	}
	c.leases = newLeaseServer(c)
	c.closing, c.cancel = context.WithCancel(context.Background())
	c.closed = sync.OnceValue(c.shutdown)
	c.noteAddresses(config.Discovery.Members())
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.closed())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	logger := newRaftLogger(c.closing, c.config.Logger)
	var err error
	server := c.config.Name + "/" + c.config.Boot
	options := raftfile.Options{FS: c.config.files, Failed: c.fail, Wrote: c.wrote}
	if c.storage, err = openStorage(c.config.DataDir, c.config.Name, server, options); err != nil {
		return err
	}
	if c.storage.fresh {
		close(c.roll.over)
	}
	if c.storage.file != nil {
		c.machine.agreed = c.storage.file.NoteCommitted
	}
	c.stream = newRaftStream(c.config.Raft, c.clusterID, c.admit, c.config.CallTimeout, c.config.Logger)
	c.stream.flush, c.stream.guard = c.storage.flush, c.guard
	c.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger:  logger,
		Stream:  c.stream,
		MaxPool: 2,
		// No pipelining: in raft 1.8.0 a pipeline whose response fails while the
		// next request waits for its place blocks for ever. The follower then
		// gets heartbeats, but no entries, and a leader that needs it commits
		// nothing and cannot be closed. A few views a day need no pipeline.
		MaxRPCsInFlight: 1,
		// A vote and entries are answered when they are on disk.
		Timeout:               c.config.CallTimeout + writesInTimeout*c.disk.typical(),
		ServerAddressProvider: c,
	})
	c.raft, err = raft.NewRaft(c.raftConfig(logger), c.machine, c.storage.logs, c.storage.stable, c.storage.snapshots, retryTransport{c.trans, c, new(sync.Map)})
	if err != nil {
		if errors.Is(err, errNewer) || errors.Is(err, errOlder) {
			return dirError(c.config.DataDir, err)
		}
		return fmt.Errorf("membership: raft: %w", err)
	}
	close(c.up)
	c.stream.open()
	c.client = &http.Client{Transport: &http.Transport{
		DialContext:           c.dialControl,
		MaxIdleConnsPerHost:   2 * asksPerVoter,
		IdleConnTimeout:       30 * time.Second,
		ResponseHeaderTimeout: 5 * time.Second,
	}}
	c.control = c.newControl()
	c.wg.Go(func() { _ = c.control.Serve(c.config.Control) }) // always ErrServerClosed
	c.wg.Go(c.comeBack)
	for _, loop := range []func(){c.run, c.takeLeads, c.watchLeader, c.renew, c.watch, c.elections, c.leases.rounds, c.compareStates} {
		c.wg.Go(loop)
	}
	return nil
}

func (c *Cluster) raftConfig(logger hclog.Logger) *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(c.storage.meta.Server)
	conf.HeartbeatTimeout = c.heartbeatTimeout()
	conf.ElectionTimeout = c.electionTimeout()
	conf.LeaderLeaseTimeout = c.config.LeaderLease
	conf.CommitTimeout = c.config.CommitTimeout
	// Views change rarely and are small: a log of a few hundred entries is
	// read at a start in no time.
	conf.SnapshotThreshold = 256
	conf.TrailingLogs = 256
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	conf.Logger = logger
	return conf
}

// shutdown undoes start, however far it came.
func (c *Cluster) shutdown() error {
	c.cancel()
	var errs []error
	if c.stream != nil {
		c.stream.close() // raft waits for its calls to end
	}
	if c.raft != nil {
		errs = append(errs, c.raft.Shutdown().Error())
	}
	if c.trans != nil {
		errs = append(errs, c.trans.Close())
	} else {
		errs = append(errs, c.config.Raft.Close())
	}
	if c.control != nil {
		errs = append(errs, c.control.Close())
		c.client.CloseIdleConnections()
	} else {
		errs = append(errs, c.config.Control.Close())
	}
	c.wg.Wait()
	if c.storage != nil {
		errs = append(errs, c.storage.close())
	}
	return errors.Join(errs...)
}

// Close stops taking part, without telling anybody: to the others this
// gateway is lost. It returns when everything has ended.
func (c *Cluster) Close() error { return c.closed() }

// Failed yields an error when this gateway cannot take part any more: its disk is
// full, say. It follows no views from then on, and others would wait for it, so
// its process should end.
func (c *Cluster) Failed() <-chan error { return c.broken }

func (c *Cluster) fail(err error) {
	said := dirError(c.config.DataDir, err)
	if c.config.DataDir == "" || errors.Is(err, errDiffers) {
		said = fmt.Errorf("membership: %w%s", err, advice(err))
	}
	select {
	case c.broken <- said:
	default:
	}
}

// View returns the newest view that this gateway knows of.
func (c *Cluster) View() *View { return c.machine.newest.Load() }

// TicketsMark returns what SetTicketsMark has written to DataDir, empty if nothing.
func (c *Cluster) TicketsMark() string {
	c.idMu.Lock()
	defer c.idMu.Unlock()
	return c.storage.meta.Tickets
}

// SetTicketsMark writes the mark of the tickets that the owner keeps in DataDir.
func (c *Cluster) SetTicketsMark(mark string) error {
	c.idMu.Lock()
	defer c.idMu.Unlock()
	return c.storage.setTicketsMark(mark)
}

// Changed returns a channel that is closed when the next view is there, when this
// gateway's standing has begun or ended, or when there is another leader. Take it before View and Standing,
// then nothing is missed:
//
//	for {
//		changed := cluster.Changed()
//		use(cluster.View(), cluster.Standing())
//		<-changed
//	}
func (c *Cluster) Changed() <-chan struct{} { return c.machine.changes() }

// Self returns the Node of this gateway's newest incarnation, if the newest
// view has it.
func (c *Cluster) Self() (kmutex.Node, bool) {
	boot, _ := c.incarnation.current()
	m, ok := c.View().Named(c.config.Name)
	if !ok || m.Boot != boot {
		return 0, false
	}
	return m.Node, true
}

// Ready waits until this gateway is in the view.
func (c *Cluster) Ready(ctx context.Context) error {
	return c.await(ctx, func(*View) bool { _, in := c.Self(); return in })
}

// await waits for a view of a kind.
func (c *Cluster) await(ctx context.Context, ok func(*View) bool) error {
	for {
		changed := c.Changed()
		if ok(c.View()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), c.Problem())
		case <-c.closing.Done():
			return errClosed
		}
	}
}

// Leader returns the name of the gateway that leads the agreement, if this one
// knows it.
func (c *Cluster) Leader() (string, bool) {
	_, id := c.raft.LeaderWithID()
	return nameOf(id), id != ""
}

// stats is what a status page shows of the agreement.
type stats struct {
	// Cluster identifies the cluster; empty before it is known.
	Cluster string `json:"cluster"`
	// Server is this gateway's id among the raft servers.
	Server string `json:"server"`
	// Role is leader, candidate, follower or shutdown.
	Role   string `json:"role"`
	Leader string `json:"leader"`
	Term   uint64 `json:"term"`
	Commit uint64 `json:"commit"`
	// Applied is the last entry that this gateway's view has seen.
	Applied uint64 `json:"applied"`
	// Voters and NonVoters are the raft servers' ids.
	Voters    []string `json:"voters"`
	NonVoters []string `json:"non_voters"`
	// Problem says what keeps this gateway from taking part; empty if nothing
	// does.
	Problem string `json:"problem"`
}

// stats returns the present figures.
func (c *Cluster) stats() stats {
	s := stats{
		Cluster:   c.clusterID(),
		Server:    c.storage.meta.Server,
		Role:      strings.ToLower(c.raft.State().String()),
		Term:      c.raft.CurrentTerm(),
		Commit:    c.raft.CommitIndex(),
		Applied:   c.raft.AppliedIndex(),
		Voters:    []string{},
		NonVoters: []string{},
	}
	s.Leader, _ = c.Leader()
	for _, server := range c.servers() {
		if server.Suffrage == raft.Voter {
			s.Voters = append(s.Voters, string(server.ID))
		} else {
			s.NonVoters = append(s.NonVoters, string(server.ID))
		}
	}
	slices.Sort(s.Voters)
	slices.Sort(s.NonVoters)
	if err := c.Problem(); err != nil {
		s.Problem = err.Error()
	}
	return s
}

// Problem returns what keeps this gateway from taking part, or nil.
func (c *Cluster) Problem() error {
	if err := c.machine.problem(); err != nil {
		return err
	}
	c.problemMu.Lock()
	defer c.problemMu.Unlock()
	return c.trouble
}

func (c *Cluster) setProblem(err error) {
	c.problemMu.Lock()
	defer c.problemMu.Unlock()
	c.trouble = err
}

// servers returns raft's present configuration.
func (c *Cluster) servers() []raft.Server {
	future := c.raft.GetConfiguration()
	if future.Error() != nil {
		return nil
	}
	return future.Configuration().Servers
}

// nameOf returns the gateway's name in a server id.
func nameOf(id raft.ServerID) string {
	name, _, _ := cutLast(string(id))
	return name
}

func cutLast(id string) (name, boot string, ok bool) {
	at := strings.LastIndexByte(id, '/')
	if at < 0 {
		return id, "", false
	}
	return id[:at], id[at+1:], true
}

// noteAddresses keeps what ServerAddr answers with.
func (c *Cluster) noteAddresses(peers []serfring.Member) {
	addresses := make(map[string]string, len(peers))
	for _, p := range peers {
		if p.Status == serfring.StatusAlive {
			addresses[p.Name] = p.PeerAddr
		}
	}
	c.addresses.Store(&addresses)
}

// ServerAddr implements raft.ServerAddressProvider: where gossip sees a server
// now comes before where it was when it was let in, so that gateways which all
// return at other addresses find each other.
func (c *Cluster) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if addr, ok := c.addressOf(id); ok {
		return address(addr, string(id)), nil
	}
	return "", fmt.Errorf("membership: no address of %s", id)
}

func (c *Cluster) addressOf(id raft.ServerID) (string, bool) {
	name := nameOf(id)
	if name == c.config.Name {
		return c.config.PeerAddr, true
	}
	if addr, ok := (*c.addresses.Load())[name]; ok {
		return addr, true
	}
	select {
	case <-c.up:
	default: // raft asks while it is being made
		return "", false
	}
	for _, s := range c.servers() {
		if s.ID == id {
			addr, _ := splitAddress(s.Address)
			return addr, true
		}
	}
	return "", false
}

var _ raft.ServerAddressProvider = (*Cluster)(nil)

// drop reads what is left of a body, so that its connection can be used again.
func drop(body io.Reader) { _, _ = io.Copy(io.Discard, io.LimitReader(body, maxCommand)) }
