package membership

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/membership/leader"
)

// assess describes raft's servers for the leader's rules, as far as the view and gossip tell.
func (n *raftNode) assess(peers []serfring.Member) []leader.Server {
	view := n.View()
	members := make(map[string]Member, len(view.Members))
	for _, m := range view.Members {
		members[m.Server] = m
	}
	var servers []leader.Server
	for _, s := range n.servers() {
		name := nameOf(s.ID)
		p, seen := find(peers, name)
		m, in := members[string(s.ID)]
		_, named := view.Named(name)
		here := seen && p.Status == serfring.StatusAlive
		now := leader.Server{ID: string(s.ID), Voter: s.Suffrage == raft.Voter, Node: m.Node}
		now.Leader = now.ID == n.storage.meta.Server
		now.Alive = now.Leader || here && (m.Boot == p.Boot || !named)
		if !in && !named {
			now.Pending = here
			now.Left = !here && (seen && p.Status == serfring.StatusLeft || !view.Awaits(name))
		}
		servers = append(servers, now)
	}
	return servers
}

// leaderless says what people can do where there is no leader, by who answers now: gossip is
// slow to notice a loss.
func (n *raftNode) leaderless(answering map[string]identity) error {
	voters, _ := n.Voting()
	missing := slices.DeleteFunc(slices.Clone(voters), func(name string) bool {
		_, answers := answering[name]
		return answers || name == n.config.Name
	})
	do := ""
	if len(missing) > 0 {
		do = "; start " + strings.Join(missing, " or ") + " again"
	}
	return fmt.Errorf("%w: %d of %d voters are seen and a majority must be there%s; "+
		"gateways with a data_dir go on when they return, a cluster that lost its majority without must be restarted%s",
		errNoLeader, len(voters)-len(missing), len(voters), do, n.disk.complaint())
}
