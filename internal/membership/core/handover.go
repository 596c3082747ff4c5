package core

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// stepDown ends this process's lead. Others may be elected; if not, it is, in a later term. Raft has no
// such call, but whoever hears of a later term leads no more.
func (c *Core) stepDown() {
	_ = c.node.Step(&pb.Message{Type: pb.MsgAppResp.Enum(), From: new(uint64(c.id)), To: new(uint64(c.id)), Term: new(c.Term() + 1)})
	c.ready()
}

// match returns how much of the log a server has acknowledged to this leader.
func (c *Core) match(id ID) (index uint64) {
	c.node.WithProgress(func(other uint64, _ raft.ProgressType, p tracker.Progress) {
		if other == uint64(id) {
			index = p.Match
		}
	})
	return index
}

// hasAll reports that a server has acknowledged the whole log to this leader, as far as was looked lately: a look takes as
// long for one server as for all, and each of many asks for it twice a second.
func (c *Core) hasAll(id ID) bool {
	l, last := c.l, c.last().Index
	if l.matches[id] != last && c.now >= l.matched+c.tick() {
		l.matched = c.now
		clear(l.matches)
		c.node.WithProgress(func(other uint64, _ raft.ProgressType, p tracker.Progress) { l.matches[ID(other)] = p.Match })
	}
	return l.matches[id] == last
}

// stays reports that there is a connection to a process, which does not leave.
func (c *Core) stays(id ID) bool {
	p := c.peers.conns[id]
	return p != nil && (p.hello == nil || !p.hello.Leaving)
}

// handOver passes the lead on to a voter that is there, a member and one that serves
// if there is one.
func (c *Core) handOver() {
	if c.state != raft.StateLeader || c.l.handing != 0 && c.now < c.l.handing+c.pacing()/6 {
		return
	}
	c.l.handing = c.now
	best, most := ID(0), 0
	for _, v := range c.conf.GetVoters() {
		id := ID(v)
		if id == c.id || !c.stays(id) {
			continue
		}
		rank := 1 + c.rand.IntN(64)
		if c.takesPart(id) {
			rank += 256
		}
		// One that has to stay out may be whom the others reach.
		if m, in := c.member(id); in && (c.leaving || c.rand.IntN(2) == 0) {
			rank += 128
			if !m.Witness {
				rank += 64
			}
		}
		if rank > most {
			best, most = id, rank
		}
	}
	if best != 0 {
		c.node.TransferLeader(uint64(best))
		return
	}
	c.l.handing = 0
	c.giveVote()
}

// giveVote gives a member a vote that is there, so that it can lead.
func (c *Core) giveVote() {
	if c.l.changing != 0 && c.now-c.l.changing < c.lease()/3 {
		return
	}
	for _, id := range c.conf.GetLearners() {
		if m, in := c.member(ID(id)); in && c.stays(ID(id)) && !m.Witness && c.caughtUp(ID(id)) {
			c.changeConf(&pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddNode.Enum(), NodeId: new(id)}}})
			return
		}
	}
}
