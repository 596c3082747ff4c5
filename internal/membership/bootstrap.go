package membership

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/membership/leader"
)

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

// tryBootstrap starts a cluster if it is this gateway's turn to. It returns what it
// waits for.
func (r *reconciler) tryBootstrap(ctx context.Context, peers []serfring.Member) error {
	if r.config.BootstrapExpect == 1 {
		switch {
		case r.config.Joining && !slices.ContainsFunc(alive(peers), func(p serfring.Member) bool { return p.Name != r.config.Name }):
			return errors.New("membership: waiting to be let in: the join list has led to no other gateway; if this one is to start a cluster, remove the list")
		case r.config.Joining:
			return errors.New("membership: waiting to be let in by a gateway of the join list")
		}
		return r.bootstrapAndElect([]bootstrapServer{{Server: r.storage.meta.Server, Addr: r.config.PeerAddr, Voter: true}})
	}
	first, err := r.peers.bootstrapPeers(peers)
	if err != nil {
		return err
	}
	ids := r.peers.identifyAll(ctx, first)
	servers := make([]bootstrapServer, 0, len(first))
	seen := seenBy(first)
	for _, p := range first {
		id, ok := ids[p.Name]
		if !ok {
			return fmt.Errorf("membership: waiting for %s to answer at %s", p.Name, p.PeerAddr)
		}
		if id.Cluster != "" {
			return r.followBootstrap(id)
		}
		if id.Boot != p.Boot || !slices.Equal(id.Sees, seen) {
			return fmt.Errorf("membership: waiting for %s to see the same %d gateways", p.Name, len(first))
		}
		servers = append(servers, bootstrapServer{Server: id.Server, Addr: p.PeerAddr, Voter: len(servers) < leader.VoterTarget(len(first))})
	}
	return r.bootstrapAndElect(servers)
}

func (r *reconciler) bootstrapAndElect(servers []bootstrapServer) error {
	if err := r.bootstrap(servers); err != nil {
		return err
	}
	if r.soleVoter() {
		r.wg.Go(r.electMyself)
	}
	return nil
}

// followBootstrap starts the same configuration as a gateway that has started
// already, if this one belongs to it; otherwise the leader will let it in.
func (r *reconciler) followBootstrap(id identity) error {
	mine := slices.ContainsFunc(id.Servers, func(f bootstrapServer) bool { return f.Server == r.storage.meta.Server })
	if !mine || clusterOf(id.Servers) != id.Cluster {
		return fmt.Errorf("membership: waiting to be let in by cluster %s", id.Cluster)
	}
	return r.bootstrap(id.Servers)
}

// bootstrap starts a cluster of the given servers, unless this gateway has joined one meanwhile.
func (r *reconciler) bootstrap(servers []bootstrapServer) error {
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
	r.storage.mu.Lock()
	defer r.storage.mu.Unlock()
	if !r.blank() {
		return nil
	}
	before := r.storage.meta.Cluster
	if err := r.storage.setCluster(clusterOf(servers)); err != nil {
		return fmt.Errorf("%w: %w", errDataDir, err)
	}
	err := r.raft.BootstrapCluster(conf).Error()
	switch {
	case errors.Is(err, raft.ErrNotVoter):
		return nil // the voters start it
	case errors.Is(err, raft.ErrCantBootstrap):
		// A leader was faster, and its greeting said which cluster this is.
		if before == "" {
			return nil
		}
		if err := r.storage.setCluster(before); err != nil {
			return fmt.Errorf("%w: %w", errDataDir, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("membership: start a cluster: %w", err)
	}
	r.storage.bootstrapped = servers
	r.config.Logger.Info("cluster started", slog.String("cluster", r.storage.meta.Cluster), slog.Int("gateways", len(servers)))
	return nil
}
