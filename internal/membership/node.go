package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/membership/raftfile"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/internal/oncelog"
)

// raftNode is this gateway's raft server, with its disk and the views that come of its log.
// All other parts of a [Cluster] have it; it calls none of them.
type raftNode struct {
	config  Config
	machine *machine
	storage *storage
	stream  *raftStream
	trans   *raft.NetworkTransport
	raft    *raft.Raft
	once    oncelog.Limit
	disk    diskWatch
	roll    rollCall

	// broken tells that the disk does not take what has been agreed on.
	broken chan error
	// up is closed when raft is set.
	up        chan struct{}
	closing   context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	leaving   atomic.Bool
	addresses addressBook

	// ops is held while raft's configuration is changed, so that a departure
	// and the leader's loop do not undo each other's work.
	ops sync.Mutex

	problemMu sync.Mutex
	trouble   error
}

// start opens the disk and begins raft, which sees the connections of other gateways that admit
// lets through, as guard returns them, and calls others by what transport returns.
func (n *raftNode) start(admit func(conn net.Conn, cluster, server string) error, guard func(net.Conn) net.Conn, transport func(*raft.NetworkTransport) raft.Transport) error {
	logger := newRaftLogger(func() bool { return n.leaving.Load() || n.closing.Err() != nil }, n.config.Logger)
	var err error
	server := n.config.Name + "/" + n.config.Boot
	options := raftfile.Options{FS: n.config.files, Failed: n.fail, Wrote: n.disk.wrote}
	if n.storage, err = openStorage(n.config.DataDir, n.config.Name, server, options); err != nil {
		return err
	}
	n.roll.file, n.disk.file = n.storage.file, n.storage.file
	if n.storage.fresh {
		close(n.roll.over)
	}
	if n.storage.file != nil {
		n.machine.agreed = n.storage.file.NoteCommitted
	}
	n.stream = newRaftStream(n.config.Raft, n.storage.clusterID, admit, n.callTimeout(), n.config.Logger)
	n.stream.flush, n.stream.guard, n.stream.tried = n.storage.flush, guard, n.addresses.tried
	n.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger:  logger,
		Stream:  n.stream,
		MaxPool: 2,
		// No pipelining: in raft 1.8.0 a pipeline whose response fails while the
		// next request waits for its place blocks for ever. The follower then
		// gets heartbeats, but no entries, and a leader that needs it commits
		// nothing and cannot be closed. A few views a day need no pipeline.
		MaxRPCsInFlight: 1,
		// A vote and entries are answered when they are on disk.
		Timeout:               n.callTimeout() + writesInTimeout*n.disk.typical(),
		ServerAddressProvider: &n.addresses,
	})
	n.raft, err = raft.NewRaft(n.raftConfig(logger), n.machine, n.storage.logs, n.storage.stable, n.storage.snapshots, transport(n.trans))
	if err != nil {
		if errors.Is(err, views.ErrNewer) || errors.Is(err, views.ErrOlder) {
			return dirError(n.config.DataDir, err)
		}
		return fmt.Errorf("membership: raft: %w", err)
	}
	close(n.up)
	n.stream.open()
	return nil
}

// stop undoes start, however far it came, and leaves the disk open.
func (n *raftNode) stop() error {
	n.cancel()
	if n.stream == nil {
		return n.config.Raft.Close()
	}
	n.stream.close() // raft waits for its calls to end
	var errs []error
	if n.raft != nil {
		errs = append(errs, n.raft.Shutdown().Error())
	}
	return errors.Join(append(errs, n.trans.Close())...)
}

// committed waits for what becomes of a command. Raft never says it of one that its state
// machine had not taken in when raft was shut down.
func (n *raftNode) committed(f raft.Future) error {
	said := make(chan error, 1)
	go func() { said <- f.Error() }() // in that case it stays as long as the process
	select {
	case err := <-said:
		return err
	case <-n.closing.Done():
		return raft.ErrRaftShutdown
	}
}

func (n *raftNode) raftConfig(logger hclog.Logger) *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(n.storage.meta.Server)
	conf.HeartbeatTimeout = n.raftTimeout()
	conf.ElectionTimeout = conf.HeartbeatTimeout
	conf.LeaderLeaseTimeout = raftTimeout(n.config.Lease)
	// Each commit is told at once; this is for what was lost on the way.
	conf.CommitTimeout = n.config.Lease / 3
	// Views change rarely and are small: a log of a few hundred entries is
	// read at a start in no time.
	conf.SnapshotThreshold = 256
	conf.TrailingLogs = 256
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	conf.Logger = logger
	return conf
}

// View returns the newest view that this gateway knows of.
func (n *raftNode) View() *View { return n.machine.newest.Load() }

// Changed returns a channel that is closed when the next view is there, when this
// gateway's standing has begun or ended, or when there is another leader. Take it before View and Standing,
// then nothing is missed:
//
//	for {
//		changed := cluster.Changed()
//		use(cluster.View(), cluster.Standing())
//		<-changed
//	}
func (n *raftNode) Changed() <-chan struct{} { return n.machine.changes() }

// await waits for a view of a kind.
func (n *raftNode) await(ctx context.Context, ok func(*View) bool) error {
	for {
		changed := n.Changed()
		if ok(n.View()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), n.Problem())
		case <-n.closing.Done():
			return errClosed
		}
	}
}

// Leader returns the name of the gateway that leads the agreement, if this one
// knows it.
func (n *raftNode) Leader() (string, bool) {
	id := n.leaderID()
	return nameOf(raft.ServerID(id)), id != ""
}

// leaderID returns the raft server that leads, as far as this gateway knows; empty if none.
func (n *raftNode) leaderID() string {
	_, id := n.raft.LeaderWithID()
	return string(id)
}

// leads reports that raft has this gateway lead.
func (n *raftNode) leads() bool { return n.raft.State() == raft.Leader }

// running reports that raft runs. It already asks while it is being made.
func (n *raftNode) running() bool {
	select {
	case <-n.up:
		return true
	default:
		return false
	}
}

// pause waits for d or one of the events, and reports whether the cluster still runs.
func (n *raftNode) pause(d time.Duration, event, other <-chan struct{}) bool {
	select {
	case <-n.closing.Done():
		return false
	case <-time.After(d):
	case <-event:
	case <-other:
	}
	return true
}

// sleep waits for d. It returns an error if ctx or the cluster ends before.
func (n *raftNode) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.closing.Done():
		return errClosed
	}
}

// Problem returns what keeps this gateway from taking part, or nil.
func (n *raftNode) Problem() error {
	if err := n.machine.problem(); err != nil {
		return err
	}
	n.problemMu.Lock()
	defer n.problemMu.Unlock()
	return n.trouble
}

func (n *raftNode) setProblem(err error) {
	n.problemMu.Lock()
	defer n.problemMu.Unlock()
	n.trouble = err
}

// servers returns raft's present configuration; nothing while raft is being made.
func (n *raftNode) servers() []raft.Server {
	if !n.running() {
		return nil
	}
	future := n.raft.GetConfiguration()
	if future.Error() != nil {
		return nil
	}
	return future.Configuration().Servers
}

// Voting returns the names of the gateways that vote, in ascending order, and whether
// this one is among them.
func (n *raftNode) Voting() (names []string, self bool) {
	for _, id := range n.voters() {
		names = append(names, nameOf(raft.ServerID(id)))
		self = self || id == n.storage.meta.Server
	}
	slices.Sort(names)
	return names, self
}

// soleVoter reports that nobody else can lead.
func (n *raftNode) soleVoter() bool {
	voters := n.voters()
	return len(voters) == 1 && voters[0] == n.storage.meta.Server
}

// voters returns the ids of raft's voters.
func (n *raftNode) voters() []string {
	var voters []string
	for _, s := range n.servers() {
		if s.Suffrage == raft.Voter {
			voters = append(voters, string(s.ID))
		}
	}
	return voters
}

// electMyself spares a cluster of one voter the wait for a leader that cannot
// come: it sends itself what a leader that steps down sends its successor. If
// that fails, the election timeout does the same a moment later.
func (n *raftNode) electMyself() {
	self := n.storage.meta.Server
	request := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self), Addr: []byte(address(n.config.PeerAddr, self)),
	}}
	err := n.trans.TimeoutNow(raft.ServerID(self), raft.ServerAddress(n.config.PeerAddr), request, &raft.TimeoutNowResponse{})
	if err != nil {
		n.config.Logger.Debug("waiting for the election timeout", slog.Any("error", err))
	}
}

// troubled says, once, what keeps a leader from its work.
func (n *raftNode) troubled(err error) {
	if !notLeading(err) && n.once.First("reconcile "+err.Error()) {
		n.config.Logger.Warn("the view or the voters could not be updated: trying again", slog.Any("error", err))
	}
}

// watchLeader tells everybody who waits for a change when raft has another leader, or
// none.
func (n *raftNode) watchLeader() {
	seen := make(chan raft.Observation, 1)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, leader := o.Data.(raft.LeaderObservation)
		return leader
	})
	n.raft.RegisterObserver(observer)
	defer n.raft.DeregisterObserver(observer)
	for {
		select {
		case <-n.closing.Done():
			return
		case <-seen:
		case <-n.raft.LeaderCh(): // also what came before the observer
		}
		n.machine.touch()
	}
}

// plausible returns an error for a term that no election has led to, or for a log that
// is later than its sender's term.
func (n *raftNode) plausible(term, log uint64) error {
	most := uint64(maxTerm)
	if n.running() && !n.blank() {
		most = min(most, n.raft.CurrentTerm()+maxTermStep)
	}
	if term > most || log > term {
		return fmt.Errorf("%w: term %d with a log of term %d, and the latest that can be is %d", errRPC, term, log, most)
	}
	return nil
}

func (n *raftNode) fail(err error) {
	said := dirError(n.config.DataDir, err)
	if n.config.DataDir == "" || errors.Is(err, errDiffers) {
		said = fmt.Errorf("membership: %w%s", err, advice(err))
	}
	select {
	case n.broken <- said:
	default:
	}
}

func notLeading(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) || errors.Is(err, raft.ErrRaftShutdown)
}

// errRPC means that no honest gateway can have sent a message.
var errRPC = errors.New("membership: raft message refused")

const (
	// maxTermStep is by how much a term may be later than this gateway's own. Each
	// election is one step, so an honest gateway is never further ahead; and whoever
	// sends one such message after the other needs 2^42 of them to reach maxTerm.
	maxTermStep = 1 << 20
	// maxTerm is the latest term at all. Raft adds one to it without looking.
	maxTerm = 1 << 62
)

// blank reports that this gateway has no share of any log yet.
func (n *raftNode) blank() bool { return n.raft.LastIndex() == 0 }

// lease returns the agreed lease; as long as none is agreed, the configured one.
func (n *raftNode) lease() time.Duration {
	if agreed := n.View().Lease; agreed > 0 {
		return agreed
	}
	return n.config.Lease
}

// raftTimeout is raft's heartbeat and election timeout, with room for the disk: whoever
// votes or takes entries in answers when they are written. It grows to the length of a
// lease at most, and then a change of the leader costs leases.
func (n *raftNode) raftTimeout() time.Duration {
	agreed := n.lease()
	if !n.roll.called() || n.roll.behind() != nil {
		// No election yet. A shorter timeout would begin one at once, and an only voter wins it.
		return 2 * agreed
	}
	return max(raftTimeout(agreed), raftTimeout(n.config.Lease), min(writesInTimeout*n.disk.typical(), agreed))
}

// callTimeout bounds one call to another gateway.
func (n *raftNode) callTimeout() time.Duration { return callTimeout(n.config.Lease) }

// votesTime is how long votes take that go over connections, and then to the disk.
func (n *raftNode) votesTime() time.Duration {
	return max(votesTime(n.lease()), min(writesInTimeout*n.disk.typical(), n.lease()))
}

// tuneRaft has raft's timeouts follow the agreed lease, where the configuration has
// another one, and the disk.
func (n *raftNode) tuneRaft() {
	agreed := n.lease()
	if agreed != n.config.Lease && n.once.First("lease "+agreed.String()) {
		n.config.Logger.Warn("the cluster has agreed on another lease: cluster.lease of this gateway does not apply",
			slog.Duration("agreed", agreed), slog.Duration("configured", n.config.Lease),
			slog.String("hint", "set cluster.lease to the agreed one; another lease needs a new cluster"))
	}
	timeouts, want := n.raft.ReloadableConfig(), n.raftTimeout()
	if change := want - timeouts.HeartbeatTimeout; change.Abs() < timeouts.HeartbeatTimeout/4 {
		return
	}
	timeouts.HeartbeatTimeout, timeouts.ElectionTimeout = want, want
	if err := n.raft.ReloadConfig(timeouts); err != nil && n.once.First("raft's timeouts") {
		n.config.Logger.Warn("raft keeps its timeouts", slog.Any("error", err))
	}
}
