package membership

import (
	"slices"

	"github.com/hashicorp/raft"
)

// Voting returns the names of the gateways that vote, in ascending order, and whether
// this one is among them.
func (c *Cluster) Voting() (names []string, self bool) {
	for _, id := range c.voters() {
		names = append(names, nameOf(raft.ServerID(id)))
		self = self || id == c.storage.meta.Server
	}
	slices.Sort(names)
	return names, self
}
