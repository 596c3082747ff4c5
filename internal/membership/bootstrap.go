package membership

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/kgate/kgate/chordring/serfring"
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

// tryBootstrap starts a cluster if it is this gateway's turn to. It returns what it
// waits for.
func (r *reconciler) tryBootstrap(ctx context.Context, peers []serfring.Member) error {
	if r.config.BootstrapExpect == 1 {
		if r.config.Joining {
			return errors.New("membership: waiting to be let in by a gateway of the join list")
		}
		return r.bootstrapAndElect([]bootstrapServer{{Server: r.storage.meta.Server, Addr: r.config.PeerAddr, Voter: true}})
	}
	first, err := r.bootstrapPeers(peers)
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
		servers = append(servers, bootstrapServer{Server: id.Server, Addr: p.PeerAddr, Voter: len(servers) < voterTarget(len(first))})
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

// seenBy names the gateways with their boots.
func seenBy(first []serfring.Member) []string {
	seen := make([]string, len(first))
	for i, p := range first {
		seen[i] = p.Name + "/" + p.Boot
	}
	return seen
}
