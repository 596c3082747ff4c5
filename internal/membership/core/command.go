package core

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/kgate/kgate/internal/membership/views"
)

// asking is a command that somebody here waits for.
type asking struct {
	tag  uint64
	data []byte // as an entry of the log
	next time.Duration
	// proven commands need proof of the admin token; those that people wait for end when there has
	// been no leader for a while.
	proven, people bool
}

// Tags of the core's own commands are beyond all others.
const ownTag = 1 << 63

// leaderlessAfter is how long there may be no leader until people who wait for a change are told
// so. Elections are over by then.
const leaderlessAfter = 3 * time.Second

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
	c.asked = append(c.asked, asking{tag, encodeEntry(c.id, tag, data), c.now, cmd.ByPeople(), cmd.ByPeople() && cmd.Define == nil})
}

func (c *Core) forget(tag uint64) {
	c.asked = slices.DeleteFunc(c.asked, func(a asking) bool { return a.tag == tag })
}

// ask has the leader propose what is asked for, again and again.
func (c *Core) ask() {
	if c.lead == 0 && c.now >= c.orphan+leaderlessAfter {
		c.tellPeople()
		return
	}
	for i := range c.asked {
		a := &c.asked[i]
		if c.now < a.next {
			continue
		}
		a.next = c.now + max(c.lease()/5, 3*c.leadersTrip()+4*c.pace.typical())
		switch {
		case c.lead == c.id && c.state == raft.StateLeader:
			c.putEntry(a.data)
		case c.lead != 0:
			m := &Command{Data: a.data}
			if tokens := c.cfg.Tokens(); a.proven && len(tokens) > 0 {
				m.Proof = proof(tokens[0], c.lead, a.data)
			}
			c.send(c.lead, Message{Ask: m})
		}
	}
}

// tellPeople ends what people wait for: there is no leader.
func (c *Core) tellPeople() {
	for _, a := range slices.Clone(c.asked) {
		if a.people {
			c.answered(a.tag, c.leaderless())
		}
	}
}

// proof shows one leader that somebody with the admin token asks for a command. The leader may be a
// thief: it does not learn the token, and can use the proof nowhere else.
func proof(token string, leads ID, data []byte) []byte {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = fmt.Fprintf(mac, "kgate command to %q: %s", serverText(leads), data) // never fails
	return mac.Sum(nil)
}

// proven reports whether a proof is made with one of our tokens for this command to this process, or
// none is needed.
func (c *Core) proven(m *Command) bool {
	tokens := c.cfg.Tokens()
	return len(tokens) == 0 || slices.ContainsFunc(tokens, func(own string) bool { return hmac.Equal(proof(own, c.id, m.Data), m.Proof) })
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
		if c.lead == 0 && a.people {
			at = min(at, max(c.orphan+leaderlessAfter, c.now+time.Millisecond))
		}
		at = min(at, max(a.next, c.now+time.Millisecond))
	}
	return at
}

// receiveCommand proposes what another process asks for, as the leader.
func (c *Core) receiveCommand(from ID, m *Command) {
	if !c.Leads() || len(m.Data) < entryHeader || ID(binary.BigEndian.Uint64(m.Data)) != from {
		return
	}
	cmd, err := views.DecodeCommand(m.Data[entryHeader:])
	if err == nil {
		err = c.allowed(from, cmd, m)
	}
	if _, in := c.machine.View().Named(c.nameOf(from)); !in && err == nil {
		return // it asks again when it is back
	}
	if err != nil {
		c.log(slog.LevelWarn, "change refused to another gateway", slog.String("name", c.nameOf(from)), slog.Any("error", err))
		why := strings.TrimPrefix(err.Error(), views.ErrCommand.Error()+": ")
		c.send(from, Message{Refusal: &Refusal{binary.BigEndian.Uint64(m.Data[8:]), why}})
		return
	}
	if c.putEntry(m.Data) && cmd.ByPeople() { // what gateways do by themselves shows in what follows
		c.log(slog.LevelInfo, "change made for another gateway", slog.String("change", cmd.String()), slog.String("name", c.nameOf(from)))
	}
}

// allowed returns an error if a process may not ask for a command.
func (c *Core) allowed(from ID, cmd views.Command, m *Command) error {
	switch {
	case cmd.Leaders():
		return fmt.Errorf("%w: only the leader judges other gateways", views.ErrCommand)
	case cmd.Remove != nil:
		if other, in := c.machine.View().Member(cmd.Remove.Node); in && other.Name != c.nameOf(from) {
			return fmt.Errorf("%w: a gateway can take out itself only", views.ErrCommand)
		}
	case cmd.ByPeople() && !c.proven(m):
		return fmt.Errorf("%w: the leader asks for proof of the admin token: give every gateway the same node.admin_token_file and version of kgate", views.ErrCommand)
	}
	return nil
}

// putEntry proposes an entry, as the leader, unless it is in the log already, and reports whether it
// has. If raft does not take it, it is asked for again.
func (c *Core) putEntry(data []byte) bool {
	head := [entryHeader]byte(data)
	_, there := c.l.entries[head]
	_, done := c.l.done[head]
	if there || done || c.node.Propose(data) != nil {
		return false
	}
	c.l.entries[head] = c.now
	return true
}

// answered takes in what became of a command of this process.
func (c *Core) answered(tag uint64, err error) {
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
	c.leaving, c.spare, c.departed = true, c.now, c.now+leaveTime
	c.tellStanding(Standing{})
}

// depart takes this gateway out: it hands the lead over first, if somebody stays. Then it waits until nobody needs
// its vote: a vote that has gone still counts.
func (c *Core) depart() {
	if !c.leaving || c.left {
		return
	}
	m, in := c.machine.View().Named(c.cfg.Name)
	in = in && m.Boot == c.self.boot && !c.self.void // void: the lease is over, the view may be old
	if c.needed() {
		c.spare = c.now
	}
	switch {
	case c.now >= min(c.spare+c.goodbye(in), c.departed):
		c.left, c.out.Left = true, true
		c.endStanding()
	case c.state == raft.StateLeader && c.needed():
		c.handOver()
	case in && !slices.ContainsFunc(c.asked, func(a asking) bool { return a.tag == leaveTag }):
		c.propose(leaveTag, views.Command{Remove: &views.Remove{Node: m.Node}})
		c.ask()
	}
}

// needed reports that another of raft's servers is there and does not leave: a member, or one that is about to be.
func (c *Core) needed() bool {
	for id := range c.inConf() {
		if id != c.id && c.stays(id) {
			return true
		}
	}
	return false
}

// goodbye is how long one that leaves waits when nobody is there who needs it: in the view, for somebody who sees it
// go; with a vote, for those that have only lost their connection, or are started again.
func (c *Core) goodbye(in bool) time.Duration {
	if in || c.votes() && (c.needed() || c.missed()) {
		return 2 * time.Second
	}
	return 0
}

// missed reports that another of raft's servers has gone, and did not leave.
func (c *Core) missed() bool {
	for id := range c.inConf() {
		if g, _ := c.peers.seen(c.nameOf(id)); id != c.id && c.peers.conns[id] == nil && !g.Left {
			return true
		}
	}
	return false
}

// nextDepart returns when to look again whether this gateway is out.
func (c *Core) nextDepart() time.Duration {
	if !c.leaving || c.needed() {
		return c.now + lookAgain
	}
	return max(min(c.spare+c.goodbye(c.self.joined), c.departed), c.now+time.Millisecond)
}
