package membership

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/peercert"
)

// bootstrapServer is a server of the configuration with which a cluster starts.
type bootstrapServer struct {
	Server string `json:"server"`
	Addr   string `json:"addr"`
	Voter  bool   `json:"voter"`
}

// clusterOf derives the cluster's id from its first servers. Their boot ids are
// random, so two clusters never have the same.
func clusterOf(servers []bootstrapServer) string {
	data, err := json.Marshal(servers)
	if err != nil {
		panic(err) // strings and booleans always encode
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// blank reports that this gateway has no share of any log yet.
func (c *Cluster) blank() bool { return c.raft.LastIndex() == 0 }

// clusterID returns the cluster that this gateway belongs to, "" if none yet.
func (c *Cluster) clusterID() string {
	c.idMu.Lock()
	defer c.idMu.Unlock()
	return c.storage.meta.Cluster
}

// admit judges the greeting of a raft connection. A gateway with an empty log
// goes with whoever lets it in; any other listens only to its raft servers.
func (c *Cluster) admit(conn net.Conn, cluster, server string) error {
	if server != c.storage.meta.Server {
		return fmt.Errorf("%w: this is %s, not %s", errGreeting, c.storage.meta.Server, server)
	}
	if !c.blank() {
		var names []string
		for _, s := range c.servers() {
			names = append(names, nameOf(s.ID))
		}
		if err := peercert.OfConn(conn, names...); err != nil {
			return fmt.Errorf("%w: %w", errGreeting, err)
		}
	}
	c.idMu.Lock()
	defer c.idMu.Unlock()
	switch own := c.storage.meta.Cluster; {
	case cluster == "":
		return fmt.Errorf("%w: no cluster", errGreeting)
	case cluster == own:
		return nil
	case own == "" || c.blank():
		return c.storage.setCluster(cluster)
	default:
		return fmt.Errorf("%w: this gateway belongs to cluster %s, not %s", errGreeting, own, cluster)
	}
}

// bootstrap starts a cluster of the given servers, unless this gateway has joined one meanwhile.
func (c *Cluster) bootstrap(servers []bootstrapServer) error {
	var conf raft.Configuration
	for _, f := range servers {
		suffrage := raft.Nonvoter
		if f.Voter {
			suffrage = raft.Voter
		}
		conf.Servers = append(conf.Servers, raft.Server{
			Suffrage: suffrage, ID: raft.ServerID(f.Server), Address: address(f.Addr, f.Server),
		})
	}
	c.idMu.Lock()
	defer c.idMu.Unlock()
	if !c.blank() {
		return nil
	}
	before := c.storage.meta.Cluster
	if err := c.storage.setCluster(clusterOf(servers)); err != nil {
		return fmt.Errorf("%w: %w", errDataDir, err)
	}
	err := c.raft.BootstrapCluster(conf).Error()
	switch {
	case errors.Is(err, raft.ErrNotVoter):
		return nil // the voters start it
	case errors.Is(err, raft.ErrCantBootstrap):
		// A leader was faster, and its greeting said which cluster this is.
		if before == "" {
			return nil
		}
		if err := c.storage.setCluster(before); err != nil {
			return fmt.Errorf("%w: %w", errDataDir, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("membership: start a cluster: %w", err)
	}
	c.bootstrapped = servers
	c.config.Logger.Info("cluster started", slog.String("cluster", c.storage.meta.Cluster), slog.Int("gateways", len(servers)))
	return nil
}

// soleVoter reports that nobody else can lead.
func (c *Cluster) soleVoter() bool {
	voters := 0
	mine := false
	for _, s := range c.servers() {
		if s.Suffrage == raft.Voter {
			voters++
			mine = mine || string(s.ID) == c.storage.meta.Server
		}
	}
	return mine && voters == 1
}

// electMyself spares a cluster of one voter the wait for a leader that cannot
// come: it sends itself what a leader that steps down sends its successor. If
// that fails, the election timeout does the same a moment later.
func (c *Cluster) electMyself() {
	self := c.storage.meta.Server
	request := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self), Addr: []byte(address(c.config.PeerAddr, self)),
	}}
	err := c.trans.TimeoutNow(raft.ServerID(self), raft.ServerAddress(c.config.PeerAddr), request, &raft.TimeoutNowResponse{})
	if err != nil {
		c.config.Logger.Debug("waiting for the election timeout", slog.Any("error", err))
	}
}

// tryBootstrap starts a cluster if it is this gateway's turn to. It returns what it
// waits for.
func (c *Cluster) tryBootstrap(ctx context.Context, peers []serfring.Member) error {
	if c.config.BootstrapExpect == 1 {
		if c.config.Joining {
			return errors.New("membership: waiting to be let in by a gateway of the join list")
		}
		return c.bootstrapAndElect([]bootstrapServer{{Server: c.storage.meta.Server, Addr: c.config.PeerAddr, Voter: true}})
	}
	first, err := c.bootstrapPeers(peers)
	if err != nil {
		return err
	}
	ids := c.identifyAll(ctx, first)
	servers := make([]bootstrapServer, 0, len(first))
	seen := seenBy(first)
	for _, p := range first {
		id, ok := ids[p.Name]
		if !ok {
			return fmt.Errorf("membership: waiting for %s to answer at %s", p.Name, p.PeerAddr)
		}
		if id.Cluster != "" {
			return c.followBootstrap(id)
		}
		if id.Boot != p.Boot || !slices.Equal(id.Sees, seen) {
			return fmt.Errorf("membership: waiting for %s to see the same %d gateways", p.Name, len(first))
		}
		servers = append(servers, bootstrapServer{Server: id.Server, Addr: p.PeerAddr, Voter: len(servers) < voterTarget(len(first))})
	}
	return c.bootstrapAndElect(servers)
}

func (c *Cluster) bootstrapAndElect(servers []bootstrapServer) error {
	if err := c.bootstrap(servers); err != nil {
		return err
	}
	if c.soleVoter() {
		c.wg.Go(c.electMyself)
	}
	return nil
}

// followBootstrap starts the same configuration as a gateway that has started
// already, if this one belongs to it; otherwise the leader will let it in.
func (c *Cluster) followBootstrap(id identity) error {
	mine := slices.ContainsFunc(id.Servers, func(f bootstrapServer) bool { return f.Server == c.storage.meta.Server })
	if !mine || clusterOf(id.Servers) != id.Cluster {
		return fmt.Errorf("membership: waiting to be let in by cluster %s", id.Cluster)
	}
	return c.bootstrap(id.Servers)
}

// bootstrapPeers returns the gateways that would start a cluster now, in order of
// name.
func (c *Cluster) bootstrapPeers(peers []serfring.Member) ([]serfring.Member, error) {
	if c.config.BootstrapExpect == 1 {
		return nil, nil // it starts one alone, or never
	}
	var first []serfring.Member
	for _, p := range peers {
		if p.Status != serfring.StatusAlive {
			continue
		}
		if p.Expect == c.config.BootstrapExpect {
			first = append(first, p)
			continue
		}
		if p.Expect > 1 && c.once.First("expect "+p.Name) {
			c.config.Logger.Warn("another gateway expects another number of gateways",
				slog.String("name", p.Name), slog.Int("theirs", p.Expect), slog.Int("ours", c.config.BootstrapExpect),
				slog.String("hint", "give every gateway that starts the cluster the same bootstrap_expect"))
		}
	}
	slices.SortFunc(first, func(a, b serfring.Member) int { return strings.Compare(a.Name, b.Name) })
	if n := len(first); n < c.config.BootstrapExpect {
		return nil, fmt.Errorf("membership: waiting for %d gateways to start a cluster, %d are there", c.config.BootstrapExpect, n)
	}
	return first, nil
}

// seenBy names the gateways with their boots.
func seenBy(first []serfring.Member) []string {
	seen := make([]string, len(first))
	for i, p := range first {
		seen[i] = p.Name + "/" + p.Boot
	}
	return seen
}
