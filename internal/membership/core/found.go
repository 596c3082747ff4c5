package core

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/views"
)

// A cluster begins with a snapshot, the same at all founders: its servers, and an empty state.
// Gateways that expect n of them wait until discovery shows n, of more the first by name, and each
// has heard from each other one that it sees the same n and belongs to no cluster. Who is late takes
// over what another founder says; who is one too many is let in afterwards.

// clusterOf derives the cluster's id from its founders: their ids are random, so two
// clusters never have the same.
func clusterOf(founders []Founder) string {
	data, err := json.Marshal(founders)
	if err != nil {
		panic(err) // strings, numbers and booleans always encode
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// sees returns the gateways with which this one wants to found a cluster; nil: with none, or
// not now.
func (c *Core) sees() []string {
	if c.cfg.Expect == 1 || !c.stored.blank() || c.stored.note.Cluster != "" {
		return nil
	}
	var names []string
	for _, g := range c.peers.gossip {
		if g.Alive && g.Expect == c.cfg.Expect {
			names = append(names, g.Name+"/"+g.Boot)
		}
	}
	slices.Sort(names)
	if len(names) < c.cfg.Expect || !slices.Contains(names[:c.cfg.Expect], c.cfg.Name+"/"+c.self.boot) {
		return nil
	}
	return names[:c.cfg.Expect]
}

// found starts a cluster if everything is there.
func (c *Core) found() {
	if !c.stored.blank() || c.leaving || c.stored.note.Cluster != "" && len(c.stored.note.Founders) == 0 {
		return
	}
	if c.cfg.Expect == 1 {
		if !c.cfg.Joining {
			c.begin([]Founder{{ID: c.id, Name: c.cfg.Name, Addr: c.cfg.Addr, Voter: true}})
		}
		return
	}
	founders := []Founder{{ID: c.id, Name: c.cfg.Name, Addr: c.cfg.Addr}}
	sees := c.sees()
	for _, id := range sortedKeys(c.peers.conns) {
		h := c.peers.conns[id].hello
		switch {
		case h == nil:
		case h.Cluster != "":
			if clusterOf(h.Founders) == h.Cluster && slices.ContainsFunc(h.Founders, func(f Founder) bool { return f.ID == c.id }) {
				c.begin(h.Founders)
				return
			}
		case sees != nil && slices.Equal(h.Sees, sees) && slices.Contains(sees, h.Name+"/"+h.Boot):
			founders = append(founders, Founder{ID: id, Name: h.Name, Addr: h.Addr})
		}
	}
	if len(founders) != c.cfg.Expect || sees == nil {
		return
	}
	slices.SortFunc(founders, func(a, b Founder) int { return cmp.Compare(a.Name, b.Name) })
	for i := range founders {
		founders[i].Voter = i < leader.VoterTarget(len(founders))
	}
	c.begin(founders)
}

// begin starts the cluster of these founders.
func (c *Core) begin(founders []Founder) {
	c.stored.note.Cluster, c.stored.note.Founders = clusterOf(founders), founders
	c.note()
	conf := &pb.ConfState{}
	var empty views.Machine
	state, err := empty.Snapshot()
	if err != nil {
		c.fail(err)
		return
	}
	d := snapshotData{Views: state}
	for _, f := range founders {
		if f.Voter {
			conf.Voters = append(conf.Voters, uint64(f.ID))
		} else {
			conf.Learners = append(conf.Learners, uint64(f.ID))
		}
		d.Servers = append(d.Servers, server{f.ID, f.Name, f.Addr})
	}
	slices.Sort(conf.Voters)
	slices.Sort(conf.Learners)
	slices.SortFunc(d.Servers, func(a, b server) int { return cmp.Compare(a.ID, b.ID) })
	data, err := json.Marshal(d)
	if err != nil {
		c.fail(fmt.Errorf("encode snapshot: %w", err))
		return
	}
	first := &pb.Message{
		Term: new(uint64(1)), Commit: new(uint64(1)),
		Snapshot: &pb.Snapshot{Data: data, Metadata: &pb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf}},
	}
	record, err := encodeRecord(recordRaft, first)
	if err == nil {
		err = c.stored.append(first)
	}
	if err == nil {
		err = c.restore()
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.putWrite(record, nil)
	c.view = nil
	c.election.at = c.now
	if len(founders) > 1 {
		c.election.at += c.hesitation()
	}
	c.log(slog.LevelInfo, "cluster started", slog.String("cluster", c.stored.note.Cluster), slog.Int("gateways", len(founders)))
}
