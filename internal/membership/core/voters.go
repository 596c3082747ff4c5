package core

import (
	"encoding/binary"
	"log/slog"
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"go.etcd.io/raft/v3"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/views"
)

// assess describes raft's servers for the rules.
func (c *Core) assess() []leader.Server {
	view, l := c.machine.View(), c.l
	out := make([]leader.Server, 0, len(c.servers))
	for _, s := range c.servers {
		m, in := c.member(s.ID)
		_, named := view.Named(s.Name)
		g, seen := c.peers.seen(s.Name)
		conn := c.peers.conns[s.ID]
		now := leader.Server{ID: serverText(s.ID), Voter: slices.Contains(c.conf.GetVoters(), uint64(s.ID)), Leader: s.ID == c.id}
		if in {
			now.Node = m.Node
			delete(l.away, s.ID)
		}
		now.Alive = c.takesPart(s.ID)
		if now.Alive {
			delete(l.dead, s.ID)
		}
		if !in && !named {
			// One that has left stays until its vote is taken away.
			stopped := conn != nil && conn.hello != nil && (conn.hello.Leaving || view.LostBoot(s.Name, conn.hello.Boot) && !view.Awaits(s.Name))
			now.Left = stopped || !now.Alive && (seen && g.Left || !view.Awaits(s.Name))
			now.Pending = now.Alive && !stopped
		}
		now.Away = !in && !named && !now.Left && (view.Awaits(s.Name) || now.Pending) && !since(l.away, s.ID, c.now, leader.AwayFor)
		now.Failed = !now.Leader && (!in && named || !now.Alive && since(l.dead, s.ID, c.now, c.cfg.SwapAfter))
		out = append(out, now)
	}
	return out
}

// takesPart reports, at a leader, that a server answers it. A connection alone says nothing: it takes longer to notice
// that a host is gone, or that nothing passes one way.
func (c *Core) takesPart(id ID) bool {
	p := c.peers.conns[id]
	return id == c.id || p != nil && c.now-p.answered < c.pacing()/3
}

// majorityAnswers reports, at a leader, that most of the voters have answered one of its last heartbeats.
func (c *Core) majorityAnswers() bool {
	voters, answer := c.conf.GetVoters(), 0
	for _, v := range voters {
		if p := c.peers.conns[ID(v)]; ID(v) == c.id || p != nil && c.now-p.answered < c.pacing()/6 {
			answer++
		}
	}
	return 2*answer > len(voters)
}

// allAnswer reports whether every voter that takes part has answered since the first step became due. A voter that was
// lost a moment ago still seems to take part, and a change that needs its vote would wait until it is back.
func (c *Core) allAnswer(first leader.Step) bool {
	l := c.l
	if first != l.want {
		l.want, l.wanted = first, c.now
	}
	return !slices.ContainsFunc(c.conf.GetVoters(), func(v uint64) bool {
		return ID(v) != c.id && c.takesPart(ID(v)) && c.peers.conns[ID(v)].answered <= l.wanted
	})
}

// since notes a time, and reports whether it is longer ago than d.
func since(at map[ID]time.Duration, id ID, now, d time.Duration) bool {
	from, noted := at[id]
	if !noted {
		from = now
		at[id] = now
	}
	return now-from > d
}

// reconcileVoters makes the changes of raft's servers that are due, all in one.
func (c *Core) reconcileVoters() {
	l := c.l
	if c.leaving || c.serversChange() {
		return
	}
	l.changing = 0
	servers := c.assess()
	if !c.allAnswer(c.nextStep(servers)) {
		return
	}
	cc, odd := &pb.ConfChangeV2{}, 0
	for range 2 * len(servers) {
		step := c.nextStep(servers)
		if step.Do == leader.Nothing || step.Do == leader.Promote && !c.caughtUp(serverID(step.Server)) {
			break
		}
		i := slices.IndexFunc(servers, func(s leader.Server) bool { return s.ID == step.Server })
		id := new(uint64(serverID(step.Server)))
		left := servers[i].Left
		switch step.Do {
		case leader.Promote:
			cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: pb.ConfChangeAddNode.Enum(), NodeId: id})
			servers[i].Voter = true
		case leader.Demote:
			cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: id})
			servers[i].Voter = false
		case leader.Remove:
			cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: pb.ConfChangeRemoveNode.Enum(), NodeId: id})
			servers = slices.Delete(servers, i, i+1)
		case leader.Nothing:
		}
		if votes(servers)%2 == 1 || left || step.Do == leader.Remove || len(l.out) > 0 {
			odd = len(cc.Changes)
		}
	}
	// An even number of votes tolerates no more losses than one fewer, so nobody is made a voter
	// alone.
	cc.Changes = cc.Changes[:odd]
	l.want = leader.Step{} // what is due later is asked about anew
	if len(cc.Changes) > 0 {
		for _, one := range cc.Changes {
			c.log(slog.LevelDebug, "voters change", slog.Any("change", one.GetType()), slog.String("name", c.nameOf(ID(one.GetNodeId()))))
		}
		c.changeConf(cc)
	}
}

// serversChange reports whether a change of raft's servers is under way. A change that was proposed long ago and is not
// agreed on counts as lost.
func (c *Core) serversChange() bool {
	return len(c.conf.GetVotersOutgoing()) > 0 || c.l.changing != 0 && c.now-c.l.changing < c.lease()/3
}

// nextStep is the rules', but what people want comes first.
func (c *Core) nextStep(servers []leader.Server) leader.Step {
	for name, until := range c.l.out {
		if c.now >= until {
			delete(c.l.out, name)
		}
	}
	for _, s := range servers {
		// One that lives comes back by itself.
		if _, out := c.l.out[c.nameOf(serverID(s.ID))]; !out || s.Node != 0 || s.Leader || s.Alive {
			continue
		}
		if step := leader.TakeOut(servers, s.ID); step.Do != leader.Nothing {
			return step
		}
	}
	return leader.NextStep(servers)
}

// takeOut has the servers of gateways go that people have taken out of the view.
func (c *Core) takeOut(entry []byte) {
	cmd, err := views.DecodeCommand(entry[entryHeader:])
	if err != nil || cmd.Suspend == nil || binary.BigEndian.Uint64(entry[8:]) >= ownTag {
		return
	}
	for _, node := range cmd.Suspend.Nodes {
		if lost, known := c.machine.View().LostMember(node); known {
			c.l.out[lost.Name], c.l.lookAt = c.now+2*c.lease(), c.now
		}
	}
}

func votes(servers []leader.Server) int {
	n := 0
	for _, s := range servers {
		if s.Voter {
			n++
		}
	}
	return n
}

// addLearner has one entry make a gateway a server without a vote and a member.
func (c *Core) addLearner(id ID, join views.Join) {
	data, err := views.Encode(views.Command{Join: &join})
	if err != nil {
		return
	}
	c.changeConf(&pb.ConfChangeV2{
		Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(id))}},
		Context: encodeEntry(c.id, c.nextTag(), data),
	})
}

// caughtUp reports that a server has the log, so that it can vote at once.
func (c *Core) caughtUp(id ID) bool {
	up := false
	c.node.WithProgress(func(other uint64, _ raft.ProgressType, p tracker.Progress) {
		up = up || other == uint64(id) && p.State == tracker.StateReplicate && p.Match+16 >= c.applied.Index
	})
	return up
}

// Changing reports, at a leader, that a change of the voters is under way.
func (c *Core) Changing() bool {
	return c.l != nil && c.l.changing != 0 || len(c.conf.GetVotersOutgoing()) > 0
}
