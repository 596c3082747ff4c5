package quorum

import (
	"slices"
	"time"
)

// replica is the state of one replica at the node that is responsible for it.
type replica struct {
	vote stamp
	line []stamp // who else has asked, in order of timestamps
	// since is when the vote was given, until how long it counts; took is how long
	// it lasted lately, the ground for a guess.
	since, until, took time.Duration
	// abstain: until when it does not vote, because votes may still count that it
	// does not know of.
	abstain time.Duration
	// End-to-End: the owner that has declared itself and the number of its ownership (0: none);
	// the highest ownership known to have ended, and the highest known.
	owner      int
	epoch      uint64
	over, high uint64
}

// expire forgets a vote that has not been renewed for a lease.
func (f *Fleet) expire(r *replica) {
	if f.opt.Lease > 0 && r.vote.TS != 0 && f.host.Now() >= r.until {
		r.vote, r.epoch = stamp{}, 0
	}
}

// next gives a vote that is free to the oldest request, and tells it. A request that
// has not been sent again for a lease is of a node that was lost: it does not get the
// vote, which would be in vain for another lease.
func (f *Fleet) next(at int, k key, r *replica) {
	if f.opt.Lease > 0 {
		r.line = slices.DeleteFunc(slices.Clone(r.line), func(q stamp) bool { return f.host.Now()-q.At >= f.opt.Lease })
	}
	if r.vote.TS != 0 || len(r.line) == 0 || f.host.Now() < r.abstain {
		return
	}
	r.vote, r.line = r.line[0], r.line[1:]
	r.since = f.host.Now()
	r.until = r.since + f.opt.Lease
	f.respond(at, k, r, r.vote)
}

// free takes the vote back.
func (f *Fleet) free(r *replica) {
	if took := f.host.Now() - r.since; r.took == 0 {
		r.took = took
	} else {
		r.took += (took - r.took) / 8
	}
	r.vote, r.epoch = stamp{}, 0
}

// respond tells a node whom the replica has voted for.
func (f *Fleet) respond(at int, k key, r *replica, to stamp) {
	m := message{kind: response, key: k, req: to, vote: r.vote, sure: true, over: r.over, high: r.high}
	for i := range r.line {
		if r.line[i].is(to) {
			m.wait = time.Duration(i+1) * r.took
		}
	}
	f.send(at, to.Node, m)
}

// replica takes in a message at the node that is responsible (Sigma's OnRequest and
// OnRelease; Non-End-to-End's replicas do the same).
func (f *Fleet) replica(at int, m message) {
	r := &f.replicas[m.key]
	f.expire(r)
	for _, q := range m.line {
		if !q.is(r.vote) {
			r.line = insert(r.line, q)
		}
	}
	switch m.kind {
	case request, yield:
		f.wanted(at, r, m)
	case clean:
		f.next(at, m.key, r)
	case release:
		r.line = remove(r.line, m.req)
		if r.vote.is(m.req) {
			f.free(r)
		}
		f.next(at, m.key, r)
	case renew:
		if r.vote.TS == 0 { // it was reset: the owner tells it
			r.vote, r.since, r.line = m.req, f.host.Now(), remove(r.line, m.req)
		}
		if r.vote.is(m.req) {
			r.until = f.host.Now() + f.opt.Lease
		}
	default: // goes to a client
	}
}

// wanted takes in a REQUEST or YIELD: the request stands in line, and if it had the
// vote and yields, the oldest gets it.
func (f *Fleet) wanted(at int, r *replica, m message) {
	switch {
	case !r.vote.is(m.req):
		r.line = insert(r.line, m.req)
	case m.kind == yield:
		r.vote, r.line = stamp{}, insert(r.line, m.req)
	default:
		r.vote.Round = max(r.vote.Round, m.req.Round)
		r.until = f.host.Now() + f.opt.Lease
	}
	free := r.vote.TS == 0
	f.next(at, m.key, r)
	if r.vote.TS != 0 && (!free || !r.vote.is(m.req)) {
		f.respond(at, m.key, r, m.req)
	}
}
