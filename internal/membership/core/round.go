package core

import "encoding/binary"

// receiveRenewal takes in a member's renewal.
func (c *Core) receiveRenewal(from ID, r *Renew) {
	l := c.l
	if l == nil || l.grantor == nil {
		return
	}
	v := c.machine.View()
	if m, in := v.Member(r.Node); in && m.Server != serverText(from) {
		return
	} else if !in {
		if _, lost := v.LostMember(r.Node); lost || uint64(r.Node) <= c.applied.Index {
			c.answer(from, Grant{Renewal: lostNode(r.Node)})
		}
		return
	}
	if !l.grantor.Waiting() {
		l.first = c.now
	}
	l.rules.Receive(r.Renewal, r.Report, c.now)
}

func (c *Core) answer(to ID, g Grant) {
	if to == c.id {
		c.granted(c.id, &g)
		return
	}
	c.send(to, Message{Grant: &g})
}

// beginRound asks the voters whether this process still leads, for all renewals that have come
// so far. Raft asks with heartbeats, which are sent again with every tick.
func (c *Core) beginRound() {
	l := c.l
	if !l.grantor.Waiting() || c.now < l.began+c.roundGap() || c.now < l.first+c.roundDelay() {
		return
	}
	l.began = c.now
	c.node.ReadIndex(binary.BigEndian.AppendUint64(nil, l.grantor.Ask()))
}

// confirmed takes in that a majority was in this process's term when a round asked.
func (c *Core) confirmed(round []byte) {
	l := c.l
	if l == nil || l.grantor == nil || len(round) != 8 {
		return
	}
	granted := l.grantor.Confirm(binary.BigEndian.Uint64(round))
	if len(granted) == 0 {
		return
	}
	l.rules.Confirmed()
	view, applied := c.machine.View(), c.machine.Newest()
	for _, r := range granted {
		if m, in := view.Member(r.Node); in {
			c.answer(serverID(m.Server), Grant{Renewal: r, Applied: applied})
		}
	}
}
