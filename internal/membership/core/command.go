package core

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/kgate/kgate/internal/membership/views"
)

// asking is a command that somebody here waits for.
type asking struct {
	tag  uint64
	data []byte // as an entry of the log
	next time.Duration
}

// Tags of the core's own commands are beyond all others.
const ownTag = 1 << 63

// propose has a command agreed on. Its entry names this process, which knows by that what became
// of it.
func (c *Core) propose(tag uint64, cmd views.Command) {
	data, err := views.Encode(cmd)
	if err == nil && len(data) > views.MaxCommand {
		err = fmt.Errorf("%w: a command of %d bytes", views.ErrCommand, len(data))
	}
	if err != nil {
		c.out.Results = append(c.out.Results, Result{tag, err})
		return
	}
	c.asked = append(c.asked, asking{tag, encodeEntry(c.id, tag, data), c.now})
}

func (c *Core) forget(tag uint64) {
	c.asked = slices.DeleteFunc(c.asked, func(a asking) bool { return a.tag == tag })
}

// ask has the leader propose what is asked for, again and again.
func (c *Core) ask() {
	for i := range c.asked {
		a := &c.asked[i]
		if c.now < a.next {
			continue
		}
		a.next = c.now + max(c.lease()/5, 3*c.trip()+4*c.pace.typical())
		switch {
		case c.lead == c.id && c.state == raft.StateLeader:
			c.putEntry(a.data)
		case c.lead != 0:
			c.send(c.lead, Message{Ask: &Command{a.tag, a.data}})
		}
	}
}

// askAgain has all commands asked for at once: there is another leader.
func (c *Core) askAgain() {
	for i := range c.asked {
		c.asked[i].next = c.now
	}
}

func (c *Core) nextAsk() time.Duration {
	at := c.now + lookAgain
	for _, a := range c.asked {
		at = min(at, a.next)
	}
	return at
}

// receiveCommand proposes what another process asks for, as the leader.
func (c *Core) receiveCommand(from ID, m *Command) {
	if c.state != raft.StateLeader || len(m.Data) < entryHeader || len(m.Data) > entryHeader+views.MaxCommand {
		return
	}
	cmd, err := views.DecodeCommand(m.Data[entryHeader:])
	if err != nil || cmd.Leaders() || cmd.Remove != nil && !c.owns(from, cmd.Remove) {
		return
	}
	c.putEntry(m.Data)
}

// putEntry proposes an entry, as the leader, unless it is in the log already. If raft does not take
// it, it is asked for again.
func (c *Core) putEntry(data []byte) {
	head := [entryHeader]byte(data)
	if !c.l.entries[head] && c.node.Propose(data) == nil {
		c.l.entries[head] = true
	}
}

// owns reports that a process takes out none but itself.
func (c *Core) owns(from ID, r *views.Remove) bool {
	m, in := c.machine.View().Member(r.Node)
	return !in || m.Server == serverText(from)
}

// answered takes in what became of a command of this process.
func (c *Core) answered(tag uint64, err error) {
	if tag >= ownTag {
		if c.l != nil {
			delete(c.l.proposed, tag)
		}
		return
	}
	if !slices.ContainsFunc(c.asked, func(a asking) bool { return a.tag == tag }) {
		return
	}
	c.forget(tag)
	if tag == leaveTag {
		return
	}
	c.out.Results = append(c.out.Results, Result{tag, err})
}

// leaveTag is the tag of the command that takes this gateway out.
const leaveTag = ownTag - 1

// leave begins to take this gateway out.
func (c *Core) leave() {
	if c.leaving {
		return
	}
	c.leaving, c.departed = true, c.now+leaveTime
	c.tellStanding(Standing{})
}

// depart takes this gateway out: it hands the lead over first.
func (c *Core) depart() {
	if !c.leaving || c.left {
		return
	}
	m, in := c.machine.View().Named(c.cfg.Name)
	in = in && m.Boot == c.self.boot
	switch {
	case !in || c.now >= c.departed:
		c.left, c.out.Left = true, true
		c.endStanding()
	case c.state == raft.StateLeader && len(c.machine.View().Members) > 1:
		c.handOver()
	case !slices.ContainsFunc(c.asked, func(a asking) bool { return a.tag == leaveTag }):
		c.propose(leaveTag, views.Command{Remove: &views.Remove{Node: m.Node}})
		c.ask()
	}
}
