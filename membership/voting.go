package membership

import (
	"slices"
	"time"

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

// timedStore reports how long it takes to store entries.
type timedStore struct {
	raft.LogStore
	took func(time.Duration)
}

// StoreLog implements raft.LogStore.
func (s timedStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (s timedStore) StoreLogs(logs []*raft.Log) error {
	began := time.Now()
	err := s.LogStore.StoreLogs(logs)
	s.took(time.Since(began))
	return err
}
