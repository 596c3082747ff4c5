package quorum

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

type posted struct {
	from, to int
	m        message
}

// recorder is a host that keeps the sent messages.
type recorder struct {
	now     time.Duration
	sent    []posted
	timers  []sim.Timer
	owners  []int // of the timers
	granted []int
}

func (r *recorder) Now() time.Duration { return r.now }
func (*recorder) Rand() *rand.Rand     { return rand.New(rand.NewPCG(1, 1)) }
func (*recorder) Found(int)            {}
func (r *recorder) Send(from, to int, _ string, m any) {
	r.sent = append(r.sent, posted{from, to, m.(message)})
}

func (r *recorder) After(node int, _ time.Duration, t sim.Timer) {
	r.timers, r.owners = append(r.timers, t), append(r.owners, node)
}

func (r *recorder) Grant(node int, _ protocol.Request) { r.granted = append(r.granted, node) }
func (r *recorder) kinds(k kind) (found []message) {
	for _, l := range r.sent {
		if l.m.kind == k {
			found = append(found, l.m)
		}
	}
	return found
}

func recorded(nodes int, opt Options) (*recorder, *Fleet) {
	r := new(recorder)
	return r, New(r, protocol.Setup{Nodes: nodes, Members: nodes, K: 1, Delay: time.Second}, opt)
}

// answer lets a replica of resource 0 tell node 0 whom it has voted for.
func answer(f *Fleet, replica int, vote stamp) {
	c := f.nodes[0].clients[0]
	f.Deliver(0, 1, message{kind: response, key: key(replica), req: c.req, vote: vote, sure: true})
}

// 002, 4.1: "the following three outcomes are possible: (1) The client is the winner
// (2) Someone else wins, in which case the client just waits (3) Nobody receives
// enough votes, in which case all the clients send out a YIELD message to each of the
// acquired replicas". The request keeps its timestamp (000, V: no starvation).
func TestThreeOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		votes  []int // whom each of five replicas votes for
		enters bool
		yields int // to so many replicas
	}{
		"the client wins":   {[]int{0, 0, 0}, true, 0},
		"someone else wins": {[]int{2, 2, 2, 3, 3}, false, 0},
		"nobody wins":       {[]int{0, 0, 2, 2, 3}, false, 2},
	} {
		r, f := recorded(400, Options{Form: Sigma})
		f.Acquire(0, 0, 1)
		mine := f.nodes[0].clients[0].req
		for j, who := range c.votes {
			vote := mine
			if who != 0 {
				vote = stamp{TS: 7, Node: who}
			}
			answer(f, j, vote)
		}
		for _, timer := range r.timers {
			f.Due(0, timer)
		}
		yields := r.kinds(yield)
		if (len(r.granted) == 1) != c.enters || len(yields) != c.yields {
			t.Errorf("%s: entered %v, %d YIELDs", name, r.granted, len(yields))
		}
		for _, y := range yields {
			if !y.req.is(mine) {
				t.Errorf("%s: YIELD of %v, the request is %v", name, y.req, mine)
			}
		}
	}
}

// A vote that the client has given back does not count when it arrives afterwards.
func TestVoteFromBeforeTheYield(t *testing.T) {
	r, f := recorded(400, Options{Form: Sigma})
	f.Acquire(0, 0, 1)
	old := f.nodes[0].clients[0].req
	for j, vote := range []stamp{old, old, {TS: 7, Node: 2}, {TS: 7, Node: 3}, {TS: 7, Node: 4}} {
		answer(f, j, vote)
	}
	f.Due(0, r.timers[len(r.timers)-1])
	answer(f, 0, old)
	answer(f, 1, old)
	answer(f, 2, f.nodes[0].clients[0].req)
	if len(r.granted) > 0 {
		t.Error("two votes that were given back and one that was not let the client in")
	}
	answer(f, 0, f.nodes[0].clients[0].req)
	answer(f, 1, f.nodes[0].clients[0].req)
	if len(r.granted) != 1 {
		t.Error("three votes do not let the client in")
	}
}

// A replica gives a free vote to the oldest request, whichever request yields.
func TestOldestGetsTheVote(t *testing.T) {
	_, f := recorded(1, Options{Form: Sigma, Replicas: 1})
	ask := func(k kind, ts uint64, node int) {
		f.replica(0, message{kind: k, req: stamp{TS: ts, Node: node}})
	}
	ask(request, 5, 5)
	ask(request, 4, 4)
	ask(request, 3, 3)
	if got := f.replicas[0].vote.Node; got != 5 {
		t.Errorf("the vote of the first is %d's", got)
	}
	ask(yield, 5, 5)
	if got := f.replicas[0].vote.Node; got != 3 {
		t.Errorf("after a YIELD the vote is %d's, not the oldest one's", got)
	}
	ask(release, 3, 3)
	ask(release, 4, 4)
	if got := f.replicas[0].vote.Node; got != 5 {
		t.Errorf("the vote is %d's, not that of the last in line, who yielded", got)
	}
}

// The requests of nodes that were lost do not get the vote one after the other, for
// a lease each.
func TestRequestsOfTheLost(t *testing.T) {
	r, f := recorded(1, Options{Form: Sigma, Replicas: 1, Lease: time.Minute})
	ask := func(ts uint64) {
		f.replica(0, message{kind: request, req: stamp{TS: ts, Node: int(ts), At: r.now}})
	}
	for ts := range uint64(5) {
		ask(ts + 1)
	}
	r.now = time.Minute
	ask(9)
	if got := f.replicas[0]; got.vote.Node != 9 || len(got.line) > 0 {
		t.Errorf("a lease later the vote is %d's, in line %v", got.vote.Node, got.line)
	}
}

// An owner puts a request in line once, however many replicas and routes tell it
// (000, IV-A 5), and a former owner passes it on once.
func TestManyEnqueues(t *testing.T) {
	r, f := recorded(400, Options{Form: EndToEnd})
	f.Acquire(0, 0, 1)
	mine := f.nodes[0].clients[0].req
	for j := range 3 {
		answer(f, j, mine)
	}
	tell := func(node int) {
		for j := range 5 {
			f.Deliver(0, 1, message{kind: enqueue, key: key(j), req: stamp{TS: uint64(node), Node: node}, epoch: newTerm(0)})
		}
	}
	tell(8)
	tell(7)
	if line := f.nodes[0].clients[0].line; len(r.granted) != 1 || len(line) != 2 || line[0].Node != 7 {
		t.Fatalf("entered %v, in line %v", r.granted, line)
	}
	f.Release(0, 0)
	tell(9)
	tokens, passed := r.kinds(token), r.kinds(enqueue)
	if len(tokens) != 1 || tokens[0].req.Node != 7 || len(tokens[0].line) != 1 || len(passed) != 1 || len(r.kinds(release)) > 0 {
		t.Errorf("TOKENs %v, passed on %v, %d RELEASEs", tokens, passed, len(r.kinds(release)))
	}
}

// IAMWINNER of an ownership that has ended may still be on its way to a replica, and
// take its vote from whom it has voted for since. So the votes of replicas that know
// of the end and of replicas that do not are not added up.
func TestVotesOfOneContext(t *testing.T) {
	r, f := recorded(400, Options{Form: EndToEnd})
	f.Acquire(0, 0, 1)
	mine := f.nodes[0].clients[0].req
	vote := func(replica int, over uint64) {
		f.Deliver(0, 1, message{kind: response, key: key(replica), req: mine, vote: mine, sure: true, over: over, high: over})
	}
	vote(0, 0)
	vote(1, 0)
	r.sent = nil
	vote(2, newTerm(0))
	if asked := r.kinds(request); len(r.granted) > 0 || len(asked) != 2 || asked[0].over != newTerm(0) {
		t.Fatalf("entered %v, asked again %v", r.granted, asked)
	}
	vote(0, newTerm(0))
	vote(1, newTerm(0))
	if len(r.granted) != 1 || f.nodes[0].clients[0].epoch != newTerm(newTerm(0)) {
		t.Errorf("entered %v", r.granted)
	}
}

// A vote that is not renewed runs out, so an old vote does not count.
func TestOldVotes(t *testing.T) {
	r, f := recorded(400, Options{Form: Sigma, Lease: time.Minute})
	f.Acquire(0, 0, 1)
	mine := f.nodes[0].clients[0].req
	answer(f, 0, mine)
	answer(f, 1, mine)
	r.now = 31 * time.Second
	answer(f, 2, mine)
	if len(r.granted) > 0 {
		t.Error("votes of half a lease ago let the client in")
	}
	answer(f, 0, mine)
	answer(f, 1, mine)
	if len(r.granted) != 1 {
		t.Error("votes that were renewed do not")
	}
}

// A vote for a request that is over goes back.
func TestVoteForNothing(t *testing.T) {
	for form, back := range map[Form]kind{Sigma: release, EndToEnd: drop, NonEndToEnd: release} {
		r, f := recorded(400, Options{Form: form})
		f.Deliver(0, 1, message{kind: response, req: stamp{TS: 3}, vote: stamp{TS: 3}, sure: true})
		if len(r.sent) != 1 || r.sent[0].m.kind != back || r.sent[0].m.req.TS != 3 {
			t.Errorf("form %d sends %v", form, r.sent)
		}
	}
}

// Two requests of a node never have the same timestamp, whatever it has forgotten.
func TestTimestampsOfTwoLives(t *testing.T) {
	_, f := recorded(3, Options{Form: Sigma, Lease: time.Minute})
	f.Acquire(0, 0, 1)
	first := f.nodes[0].clients[0].req
	f.Lost(0)
	f.Joined(0)
	f.Acquire(0, 0, 2)
	if second := f.nodes[0].clients[0].req; second.compare(first) <= 0 {
		t.Errorf("first %v, then %v", first, second)
	}
}

// 000, V-A's P_f = 1-(1-p)^M is the probability that any replica is reset. Two owners
// take a quorum of them, and a second request.
func TestBroken(t *testing.T) {
	const m, q, p = 10, 6, .05
	paper := 1 - math.Pow(1-p, m)
	r := rand.New(rand.NewPCG(1, 1))
	broken := 0
	const draws = 2_000_000
	for range draws {
		reset := 0
		for range m {
			if r.Float64() < 4*p {
				reset++
			}
		}
		if reset >= q {
			broken++
		}
	}
	if got, drawn := Broken(m, q, 4*p), float64(broken)/draws; math.Abs(got/drawn-1) > .05 {
		t.Errorf("%g, drawn %g", got, drawn)
	}
	if got := Broken(m, q, p); got > paper/10_000 {
		t.Errorf("%g of the paper's %g", got, paper)
	}
}

// 000, V-A and V-B: when a node on a route is lost, its predecessor lays the route
// anew, and its successor clears the rest of the old route.
func TestRouteIsMended(t *testing.T) {
	for form, anew := range map[Form]kind{EndToEnd: winner, NonEndToEnd: request} {
		r, f := recorded(400, Options{Form: form, Lease: time.Hour})
		f.Acquire(0, 0, 1)
		for len(r.sent) > 0 {
			l := r.sent[0]
			r.sent = r.sent[1:]
			f.Deliver(l.to, l.from, l.m)
		}
		lost, before, after := -1, 0, 0
		var torn key
		for k := range f.opt.Replicas {
			at := 0 // two steps from the owner
			for range 2 {
				at = f.nodes[at].entries[key(k)].next
			}
			if e, there := f.nodes[at].entries[key(k)]; there && e.next != f.overlay.place[k] {
				lost, before, after, torn = at, e.prev, e.next, key(k)
			}
		}
		if lost < 0 {
			t.Fatal("no route is long enough")
		}
		r.timers, r.owners = nil, nil
		f.Lost(lost)
		for i, timer := range r.timers {
			if key(timer.Arg) == torn {
				f.Due(r.owners[i], timer)
			}
		}
		var laid, cleared bool
		for _, l := range r.sent {
			laid = laid || l.from == before && l.m.kind == anew && l.to != lost
			cleared = cleared || l.from == after && l.m.kind == clean
		}
		if _, still := f.nodes[after].entries[torn]; !laid || !cleared || still {
			t.Errorf("form %d: laid anew %v, cleared %v, entry behind the gap %v", form, laid, cleared, still)
		}
	}
}
