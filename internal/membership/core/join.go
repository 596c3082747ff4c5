package core

import (
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// receiveJoin judges, as the leader, a gateway that wants to come in.
func (c *Core) receiveJoin(from ID, j *Join) {
	join, l := j.Join, c.l
	if join.Check() != nil || serverID(join.Server) != from || c.nameOf(from) != join.Name {
		return // nobody speaks for another one
	}
	if l == nil || l.grantor == nil {
		if from != c.id {
			c.sayHello(from) // it has the leader's name
			if leads := c.peers.conns[c.lead]; leads != nil && !slices.Contains(j.Reaches, leads.name) {
				c.send(c.lead, Message{Knocks: &join})
			}
		}
		return
	}
	if c.leaving {
		return
	}
	v := c.machine.View()
	if v.LostBoot(join.Name, join.Boot) {
		c.answer(from, Grant{Lost: join.Boot})
		return
	}
	m, in := v.Named(join.Name)
	there := c.inConf()[from]
	if in && m.Boot == join.Boot && m.PeerAddr == join.PeerAddr && m.Server == join.Server && there {
		return // the view is on its way
	}
	if at, proposed := l.joining[join.Name]; proposed && c.now-at < c.lease()/3 {
		return
	}
	if (!in || m.Boot != join.Boot) && !c.mayJoin(from, &join, j.Reaches) {
		return
	}
	if c.serversChange() {
		return // it may take its server away; the gateway asks again
	}
	l.joining[join.Name] = c.now
	if there {
		c.decree(views.Command{Join: &join})
		return
	}
	c.addLearner(from, join)
}

// mayJoin reports that a gateway may come in, as the rules see it. One to which a round trip takes too long for
// a lease would get none, and every pool would wait for it.
func (c *Core) mayJoin(from ID, join *views.Join, reaches []string) bool {
	l := c.l
	if p := c.peers.conns[from]; p != nil && c.isFar(p.trip) {
		c.tooSlow(join.Name, p.trip)
	} else if !l.rules.Waits(join.Name, c.now) {
		var unreached []string
		for _, m := range c.machine.View().Members {
			// It has asked this gateway, and a witness needs no other links.
			if m.Name != join.Name && m.Name != c.cfg.Name && !join.Witness && !slices.Contains(reaches, m.Name) {
				unreached = append(unreached, m.Name)
			}
		}
		obstacle := l.rules.LetIn(join.Name, unreached, c.observe(), c.now)
		if obstacle == "" {
			return true
		}
		c.keptOut(join.Name, obstacle)
	}
	c.giveBack(join)
	return false
}

// knocked takes in, as the leader, that a gateway would come in if another one led. What it gives back is
// taken from voters alone: they could win an election, and say the same.
func (c *Core) knocked(from ID, join *views.Join) {
	if c.l == nil || c.l.grantor == nil || join.Check() != nil {
		return
	}
	_, seen := c.peers.seen(join.Name)
	_, in := c.machine.View().Named(join.Name)
	_, reached := c.peers.named(join.Name)
	if seen && !in && !reached {
		c.l.rules.Knocks(join.Name, c.cfg.Name, c.now)
	}
	if slices.Contains(c.conf.GetVoters(), uint64(from)) {
		c.giveBack(join)
	}
}

// giveBack gives back what the incarnation had that a gateway was before: it says itself that nothing of
// it is in flight.
func (c *Core) giveBack(join *views.Join) {
	lost, known := c.machine.View().LostMember(join.Voided)
	if known && lost.Leased && lost.Name == join.Name && !c.decreed() {
		c.decree(views.Command{Expire: &views.Expire{Nodes: []kmutex.Node{join.Voided}}})
	}
}

func (c *Core) changeConf(cc *pb.ConfChangeV2) {
	if c.node.ProposeConfChange(cc) == nil {
		c.l.changing = max(c.now, 1)
	}
}
