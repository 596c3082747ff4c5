package quorum

import "slices"

// An epoch is one ownership: its term, which a majority of the replicas voted for,
// and how often the token was handed over since. Epochs of a resource grow.
const handOvers = 20 // bits

func newTerm(after uint64) uint64 { return (after>>handOvers + 1) << handOvers }

// past is what a node remembers of the last time it owned a resource.
type past struct {
	// at is the epoch in which its successor owns the resource, to whom it passes
	// on what comes for it; or it was the last: ended is its epoch.
	at        uint64
	successor int
	ended     uint64
	passed    []stamp // what it has passed on
	early     []stamp // what came before the token did
}

// endToEndRoute does a node's part of a route: a REQUEST stops at the first node
// that is on the route of an owner, which is told by ENQUEUE; IAMWINNER lays the
// route, RELEASE goes along it and clears it.
func (f *Fleet) endToEndRoute(at, from, next int, m *message) (int, bool) {
	n := &f.nodes[at]
	resource := f.resource(m.key)
	switch m.kind {
	case request:
		f.keys(resource, func(k key) {
			if e, there := n.entries[k]; there && e.epoch <= m.over {
				delete(n.entries, k) // the request knows better
			}
		})
		if e, there := f.known(n, resource); there {
			f.send(at, e.owner, message{kind: enqueue, key: m.key, req: m.req, epoch: e.epoch})
			return next, true
		}
	case winner:
		if e, there := n.entries[m.key]; !there || e.epoch <= m.epoch || f.stale(e) {
			n.entries[m.key] = entry{
				holder: m.req, owner: m.owner, epoch: m.epoch, next: next, prev: from, until: f.host.Now() + f.opt.Lease,
			}
		}
	case clean:
		return f.clear(at, from, next, m)
	case release:
		if e, there := n.entries[m.key]; there && f.overlay.there[e.next] && e.next != at {
			next = e.next
		}
		f.keys(resource, func(k key) {
			if e, there := n.entries[k]; there && e.epoch <= m.epoch {
				e.ended = true
				n.entries[k] = e
			}
		})
		if n.entries[m.key].ended {
			delete(n.entries, m.key)
		}
	default:
	}
	return next, false
}

// known returns what a node knows about the owner of a resource, whichever replica
// it knows it for.
func (f *Fleet) known(n *node, resource int) (best entry, there bool) {
	f.keys(resource, func(k key) {
		if e, on := n.entries[k]; on && !e.ended && !f.stale(e) && e.epoch > best.epoch {
			best, there = e, true
		}
	})
	return best, there
}

func (f *Fleet) stale(e entry) bool { return f.opt.Lease > 0 && f.host.Now() >= e.until }

// endToEndReplica takes in a message at the node that is responsible. Until a
// winner has told it, the replica keeps who else has asked.
func (f *Fleet) endToEndReplica(at int, m message) {
	r := &f.replicas[m.key]
	f.expire(r)
	switch m.kind {
	case request, yield:
		f.raise(at, m.key, r, m.over)
		if r.epoch != 0 {
			f.send(at, r.owner, message{kind: enqueue, key: m.key, req: m.req, epoch: r.epoch})
			return
		}
		f.wanted(at, r, m)
	case drop:
		r.line = remove(r.line, m.req)
		if r.epoch == 0 && r.vote.is(m.req) {
			r.vote = stamp{}
		}
		f.next(at, m.key, r)
	case winner:
		f.won(at, r, m)
	case release:
		f.raise(at, m.key, r, m.epoch)
	default:
	}
}

// won takes in IAMWINNER: all other requests, the request with the vote too, now stand in the owner's
// line.
func (f *Fleet) won(at int, r *replica, m message) {
	if m.epoch <= r.over || m.epoch < r.epoch {
		return
	}
	if r.epoch == 0 && r.vote.TS != 0 {
		r.line = insert(r.line, r.vote)
	}
	for _, q := range r.line {
		if !q.is(m.req) {
			f.send(at, m.owner, message{kind: enqueue, key: m.key, req: q, epoch: m.epoch})
		}
	}
	r.vote, r.line, r.since = m.req, nil, f.host.Now()
	r.owner, r.epoch, r.high = m.owner, m.epoch, max(r.high, m.epoch)
	r.until = f.host.Now() + f.opt.Lease
}

// raise takes in that an epoch and all before it have ended. A vote that no winner
// has confirmed stays, but counts in the new context only if the voter hears so.
func (f *Fleet) raise(at int, k key, r *replica, over uint64) {
	if over <= r.over {
		return
	}
	r.over, r.high = over, max(r.high, over)
	switch {
	case r.epoch != 0 && r.epoch <= over:
		f.free(r)
		f.next(at, k, r)
	case r.epoch == 0 && r.vote.TS != 0:
		f.respond(at, k, r, r.vote)
	}
}

// sameContext asks replicas again whose votes were given before an ownership that
// another replica knows to have ended: until then its announcement may be on its
// way to them and take the vote away.
func (f *Fleet) sameContext(at, resource int, c *client, m message) {
	switch {
	case f.opt.Form != EndToEnd:
	case m.over > c.context:
		c.context = m.over
		for j := range c.votes {
			if v := &c.votes[j]; v.who.is(c.req) && v.context < c.context {
				f.askOne(at, c, key(resource*f.opt.Replicas+j))
			}
		}
	case m.over < c.context && m.vote.is(c.req):
		f.askOne(at, c, m.key)
	}
}

// own makes a client that has won the votes an owner.
func (f *Fleet) own(at, resource int, c *client) {
	c.epoch = newTerm(max(c.high, c.context))
	if f.opt.Lease > 0 {
		// Replicas that were reset do not know how far the epochs had got.
		c.epoch = max(c.epoch, uint64(f.host.Now().Microseconds())<<handOvers)
	}
	delete(f.nodes[at].past, resource)
	f.announce(at, resource, c)
}

// announce sends IAMWINNER to all replicas.
func (f *Fleet) announce(at, resource int, c *client) {
	c.anchor, c.renewed = at, f.host.Now()
	f.keys(resource, func(k key) {
		f.route(at, message{kind: winner, key: k, req: c.req, owner: at, epoch: c.epoch})
	})
}

// enqueued takes in ENQUEUE: the owner puts the request in line, once; a former owner sends it after the
// token; the last owner lets it try again.
func (f *Fleet) enqueued(at int, m message) {
	resource := f.resource(m.key)
	if c := f.nodes[at].clients[resource]; c != nil && c.in {
		if m.req.Node != at {
			c.line = insert(c.line, m.req)
		}
		return
	}
	p := f.nodes[at].past[resource]
	switch {
	case m.epoch >= p.at && m.passed: // the token is on its way to here
		p.early = insert(p.early, m.req)
		f.nodes[at].past[resource] = p
	case m.epoch >= p.at: // this node has lost what it knew
		f.send(at, m.req.Node, message{kind: retry, key: m.key, req: m.req})
	case p.ended != 0:
		f.send(at, m.req.Node, message{kind: retry, key: m.key, req: m.req, over: p.ended})
	case !slices.Contains(p.passed, m.req):
		p.passed = append(p.passed, m.req)
		f.nodes[at].past[resource] = p
		m.epoch, m.passed = p.at, true
		f.send(at, p.successor, m)
	}
}

// refused takes in RETRY: the ownership to which the request was sent is over.
func (f *Fleet) refused(at int, m message) {
	resource := f.resource(m.key)
	c := f.nodes[at].clients[resource]
	if c == nil || c.in || !c.req.is(m.req) || m.req.Round < c.req.Round {
		return
	}
	if c.context = max(c.context, m.over); m.over == 0 && f.opt.Lease > 0 {
		return // it asks again anyway
	}
	f.nextRound(c)
	f.ask(at, resource, c)
}

// handOver sends the token with the line to the next in line; the last one releases
// the replicas. There is no RELEASE with the token: between the two a third node
// could get a majority.
func (f *Fleet) handOver(at, resource int, o ownership) {
	n := &f.nodes[at]
	k := key(resource * f.opt.Replicas)
	if len(o.line) > 0 {
		n.past[resource] = past{at: o.epoch + 1, successor: o.line[0].Node}
		f.send(at, o.line[0].Node, message{
			kind: token, key: k, req: o.line[0], line: o.line[1:], epoch: o.epoch + 1, owner: o.anchor, renewed: o.renewed,
		})
		return
	}
	n.past[resource] = past{at: o.epoch + 1, ended: o.epoch}
	if o.anchor == at {
		f.clearAll(at, resource, o.epoch)
		return
	}
	f.send(at, o.anchor, message{kind: end, key: k, epoch: o.epoch})
}

// clearAll sends RELEASE along the routes.
func (f *Fleet) clearAll(at, resource int, epoch uint64) {
	f.keys(resource, func(k key) { f.route(at, message{kind: release, key: k, epoch: epoch}) })
}

// handed takes in the TOKEN.
func (f *Fleet) handed(at int, m message) {
	resource := f.resource(m.key)
	n := &f.nodes[at]
	line := slices.Clone(m.line)
	for _, q := range n.past[resource].early {
		line = insert(line, q)
	}
	line = slices.DeleteFunc(line, func(q stamp) bool { return q.Node == at })
	c := n.clients[resource]
	o := ownership{epoch: m.epoch, anchor: m.owner, renewed: m.renewed, line: line}
	if c == nil { // it was served before: a request stands in line twice at worst
		f.handOver(at, resource, o)
		return
	}
	delete(n.past, resource)
	c.ownership = o
	switch {
	case f.opt.Announce:
		f.announce(at, resource, c)
	case c.anchor != at:
		f.send(at, c.anchor, message{kind: moved, key: m.key, epoch: c.epoch, owner: at})
	}
	f.enter(at, resource, c)
}

// ownerMoved tells the first owner who owns the resource now.
func (f *Fleet) ownerMoved(at int, m message) {
	resource := f.resource(m.key)
	if p, there := f.nodes[at].past[resource]; there && p.ended == 0 && p.at < m.epoch {
		p.at, p.successor = m.epoch, m.owner
		f.nodes[at].past[resource] = p
	}
}

// ended tells the first owner that the last one has nobody to hand over to.
func (f *Fleet) ended(at int, m message) {
	resource := f.resource(m.key)
	if p, there := f.nodes[at].past[resource]; there && p.at <= m.epoch {
		f.nodes[at].past[resource] = past{at: m.epoch + 1, ended: m.epoch}
	}
	f.clearAll(at, resource, m.epoch)
}
