package quorum

import (
	"time"

	"github.com/kgate/kgate/lab/protocol"
)

// client is a node's request for a resource, waiting or in the critical section.
type client struct {
	request protocol.Request
	req     stamp
	in      bool
	votes   []vote // by replica
	// yielding: it will give its votes back; soon: because nobody can win.
	yielding, soon bool
	asking         bool // it will ask again
	tries          int  // how often it has yielded, up to maxTries
	wait           time.Duration

	// End-to-End. Votes count in the context in which the replica gave them: the
	// last ownership that it knew to have ended.
	context, high uint64
	ownership
}

// ownership is what goes with End-to-End's token.
type ownership struct {
	epoch uint64
	// anchor is the owner to whom the routes lead: the first, or the last that has
	// told the replicas, which was at renewed.
	anchor  int
	renewed time.Duration
	line    []stamp
}

// maxTries bounds how far the back-off doubles.
const maxTries = 8

// vote is what a replica has answered.
type vote struct {
	who     stamp // TS 0: nothing yet
	sure    bool
	at      time.Duration
	context uint64
	// floor is the round in which the client gave its last vote back: one of an
	// earlier round is void.
	floor int
}

// Acquire asks for a resource. A node asks for one resource once at a time.
func (f *Fleet) Acquire(at, resource int, t protocol.Request) {
	f.follow()
	n := &f.nodes[at]
	n.clock++
	c := &client{request: t, req: stamp{TS: n.clock, Node: at}, votes: make([]vote, f.opt.Replicas)}
	n.clients[resource] = c
	f.ask(at, resource, c)
	if f.opt.Lease > 0 {
		f.askLater(at, resource, c)
	}
	f.settle()
}

// ask sends the request to all replicas.
func (f *Fleet) ask(at, resource int, c *client) {
	c.req.At = f.host.Now()
	f.keys(resource, func(k key) { f.askOne(at, c, k) })
}

func (f *Fleet) askOne(at int, c *client, k key) {
	f.route(at, message{kind: request, key: k, req: c.req, over: c.context})
}

// askLater lets a client ask again: when its turn should have come, and in time for
// its votes not to run out.
func (f *Fleet) askLater(at, resource int, c *client) {
	if c.asking {
		return
	}
	c.asking = true
	d := max(c.wait, 4*f.base())
	if f.opt.Lease > 0 {
		d = f.opt.Lease / 4
	}
	f.after(at, resource, c, d, timerAsk)
}

func (f *Fleet) nextRound(c *client) {
	if f.opt.rounds == 0 || c.req.Round < f.opt.rounds {
		c.req.Round++
	}
}

// askAgain is the informed back-off: the request goes to all replicas once more,
// with its timestamp.
func (f *Fleet) askAgain(at, resource int, c *client) {
	if c.asking = false; c.in {
		return
	}
	f.nextRound(c)
	c.wait = 0
	f.ask(at, resource, c)
	if f.opt.Lease > 0 {
		f.askLater(at, resource, c)
	}
}

// answered takes in a RESPONSE or GRANTREQ.
func (f *Fleet) answered(at int, m message) {
	resource := f.resource(m.key)
	c := f.nodes[at].clients[resource]
	if c == nil || !c.req.is(m.req) {
		f.disown(at, m)
		return
	}
	v := &c.votes[int(m.key)%f.opt.Replicas]
	if c.in || m.vote.is(c.req) && m.vote.Round < v.floor {
		return
	}
	v.who, v.sure, v.at, v.context = m.vote, m.sure, f.host.Now(), m.over
	c.wait = max(c.wait, m.wait)
	c.high = max(c.high, m.high)
	f.sameContext(at, resource, c, m)
	f.decide(at, resource, c)
}

// disown gives a vote back that has come for a request which is over.
func (f *Fleet) disown(at int, m message) {
	k := release
	if f.opt.Form == EndToEnd {
		k = drop
	}
	f.route(at, message{kind: k, key: m.key, req: m.req})
}

// tally counts the votes of a client: its own, the most that one other has, and
// the replicas that have not answered.
func (f *Fleet) tally(c *client) (own, other, unknown int) {
	for i := range c.votes {
		switch v := &c.votes[i]; {
		case v.who.TS == 0:
			unknown++
		case v.who.is(c.req):
			if v.sure && v.context == c.context && f.fresh(v) {
				own++
			}
		default:
			same := 0
			for j := range c.votes {
				if c.votes[j].who.is(v.who) {
					same++
				}
			}
			other = max(other, same)
		}
	}
	return own, other, unknown
}

// fresh reports whether a vote is so young that the replica still stands by it when it hears of the
// winner.
func (f *Fleet) fresh(v *vote) bool {
	return f.opt.Lease == 0 || f.host.Now()-v.at < f.opt.Lease/2
}

// decide draws the conclusion from the votes: enter, wait, or yield later.
func (f *Fleet) decide(at, resource int, c *client) {
	own, other, unknown := f.tally(c)
	if own >= f.opt.Quorum {
		f.win(at, resource, c)
		return
	}
	if f.opt.Form == Sigma && f.opt.Poll && unknown == 0 {
		f.askLater(at, resource, c)
	}
	if own == 0 {
		return
	}
	// Nobody can win as things are: yield soon. If somebody may have won, what
	// this node knows of it may still be out of date: yield at last.
	stuck := max(own, other)+unknown < f.opt.Quorum
	if c.yielding && (c.soon || !stuck) {
		return
	}
	c.yielding, c.soon = true, stuck
	d := f.base() << c.tries
	if !stuck {
		d *= 8
	}
	f.after(at, resource, c, d+time.Duration(f.host.Rand().Int64N(int64(d)+1)), timerYield)
}

// giveUp sends YIELD, with the timestamp that the request has had all along, to the
// replicas that voted for it.
func (f *Fleet) giveUp(at, resource int, c *client) {
	if !c.yielding || c.in || f.opt.yields > 0 && c.tries >= f.opt.yields {
		return
	}
	c.yielding, c.soon = false, false
	c.tries = min(c.tries+1, maxTries)
	f.nextRound(c)
	c.req.At = f.host.Now()
	for j := range c.votes {
		// A request that waits in a partial line is not known to the replica: there
		// every replica is told, or each might prefer another one for ever.
		if v := &c.votes[j]; v.who.is(c.req) && v.sure || f.opt.Form == NonEndToEnd {
			*v = vote{floor: c.req.Round}
			f.route(at, message{kind: yield, key: key(resource*f.opt.Replicas + j), req: c.req, over: c.context})
		}
	}
}

// win lets a client with enough votes in.
func (f *Fleet) win(at, resource int, c *client) {
	c.renewed = f.host.Now()
	if f.opt.Form == EndToEnd {
		f.own(at, resource, c)
	}
	f.enter(at, resource, c)
}

func (f *Fleet) enter(at, resource int, c *client) {
	c.in, c.yielding = true, false
	if f.opt.Lease > 0 {
		f.after(at, resource, c, c.renewed+f.opt.Lease/4-f.host.Now(), timerRenew)
	}
	f.host.Grant(at, c.request)
}

// renew tells the replicas that the owner still is one. Those that have lost their
// state learn it again by this.
func (f *Fleet) renew(at, resource int, c *client) {
	if !c.in {
		return
	}
	if f.opt.Form == EndToEnd {
		f.announce(at, resource, c)
	} else {
		f.keys(resource, func(k key) { f.route(at, message{kind: renew, key: k, req: c.req}) })
	}
	f.after(at, resource, c, f.opt.Lease/4, timerRenew)
}

// Release ends a critical section.
func (f *Fleet) Release(at, resource int) {
	f.follow()
	n := &f.nodes[at]
	c := n.clients[resource]
	delete(n.clients, resource)
	if f.opt.Form == EndToEnd {
		f.handOver(at, resource, c.ownership)
	} else {
		f.keys(resource, func(k key) { f.route(at, message{kind: release, key: k, req: c.req}) })
	}
	f.settle()
}
