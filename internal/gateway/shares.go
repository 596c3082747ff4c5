package gateway

import (
	"cmp"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// In the order fair a client's share of the slots is counted over all gateways: the time for which its
// requests have held slots, divided by its weight. The pool's home has the totals. Each gateway tells
// it, a few times a second, what its clients have had since, and is told the totals.
//
// Nobody who waits is far behind: one who comes, and did not wait anywhere, begins with the least that
// one of those who wait has had (start-time fair queuing). So who was away has no credit.

const (
	// sharesEvery is how often a gateway with clients tells home.
	sharesEvery = 250 * time.Millisecond
	// sharesKeep is how long home, and a gateway that home does not answer, go by what they were told.
	sharesKeep = 4 * sharesEvery
	// maxShares is how many clients a gateway tells of at once, and remembers that do not wait.
	maxShares = 256
)

// share is what is known of a client.
type share struct {
	served    float64       // slot-seconds by weight, over all gateways
	unsent    float64       // those of them that home does not know of
	elsewhere bool          // it waits at another gateway
	hold      time.Duration // moving mean of its holds here
}

// shares are those of a pool's clients, by name. The pool's lock guards them.
type shares struct {
	of map[string]*share
	// start is what a client who comes begins with: the least of those who wait. It never falls.
	start float64
	// least of those who wait at other gateways, as known since at; negative: nobody does.
	least float64
	at    time.Time
	// active is the weight of those who wait or hold slots at other gateways.
	active float64
	// heard is what other gateways have told, at home.
	heard map[kmutex.Node]heard
}

type heard struct {
	at      time.Time
	clients map[string]bool // and whether they wait
}

// told is what a gateway tells home.
type told struct {
	From    kmutex.Node
	Start   float64
	Clients []toldShare
}

type toldShare struct {
	Client []byte
	// Known is what the gateway takes for the total, without More, which is new.
	Known, More float64
	// Here: it waits or holds slots there.
	Here, Waits bool
}

// totals are home's answer.
type totals struct {
	Start   float64
	Least   float64 // negative: nobody waits elsewhere
	Active  float64 // the weight of those elsewhere
	Clients []total
}

type total struct {
	Served    float64
	Elsewhere bool
}

func newShares() shares { return shares{of: make(map[string]*share), least: -1} }

func (q *shares) share(key string) *share {
	s := q.of[key]
	if s == nil {
		s = &share{served: q.start}
		q.of[key] = s
	}
	return s
}

// comes notes that a client waits that did not wait here.
func (q *shares) comes(key string) {
	if s := q.share(key); !s.elsewhere && s.served < q.start {
		s.unsent += q.start - s.served
		s.served = q.start
	}
}

// charge adds slot-seconds by weight.
func (q *shares) charge(key string, amount float64) {
	s := q.share(key)
	s.served += amount
	s.unsent += amount
}

// fresh reports whether what home has said of others still counts.
func (q *shares) fresh(now time.Time) bool { return now.Sub(q.at) < sharesKeep }

// floor returns the least that one of those who wait has had, here, as the caller says, or elsewhere.
func (q *shares) floor(now time.Time, here float64) float64 {
	if q.least >= 0 && q.fresh(now) && (here < 0 || q.least < here) {
		here = q.least
	}
	q.start = max(q.start, here)
	return here
}

// tell returns what home is to know: of those who wait or hold slots here, or did.
func (q *shares) tell(self kmutex.Node, waits map[string]bool) told {
	out := told{From: self, Start: q.start}
	for key, s := range q.of {
		_, here := waits[key]
		if here || s.unsent != 0 {
			out.Clients = append(out.Clients, toldShare{[]byte(key), s.served - s.unsent, s.unsent, here, waits[key]})
		}
	}
	if len(out.Clients) > maxShares {
		slices.SortFunc(out.Clients, func(a, b toldShare) int { return cmp.Compare(b.More, a.More) })
		// What others wait for is the least, whatever it had lately.
		for i, c := range out.Clients {
			if first := out.Clients[0]; c.Waits && (!first.Waits || c.Known+c.More < first.Known+first.More) {
				out.Clients[0], out.Clients[i] = c, first
			}
		}
		out.Clients = out.Clients[:maxShares]
	}
	return out
}

// hear takes in, at home, what another gateway tells, and returns the totals. Here are home's own
// clients, and whether they wait.
func (q *queue) hear(now time.Time, in told, here map[string]bool) totals {
	h := heard{now, make(map[string]bool)}
	q.start = max(q.start, in.Start)
	for _, c := range in.Clients {
		key := string(c.Client)
		s, known := q.of[key]
		if !known {
			s = &share{served: max(c.Known, 0)}
			q.of[key] = s
		}
		s.served += c.More
		if c.Here {
			h.clients[key] = c.Waits
		}
	}
	if q.heard == nil {
		q.heard = make(map[kmutex.Node]heard)
	}
	q.heard[in.From] = h
	q.lookAround(now)
	elsewhere := q.but(in.From)
	add(elsewhere, here)
	out := totals{Start: q.start}
	out.Least, out.Active = q.leastOf(elsewhere)
	for _, c := range in.Clients {
		out.Clients = append(out.Clients, total{q.of[string(c.Client)].served, elsewhere[string(c.Client)]})
	}
	return out
}

// but returns the clients at gateways that have told, except one, and whether they wait.
func (q *shares) but(node kmutex.Node) map[string]bool {
	all := make(map[string]bool)
	for from, h := range q.heard {
		if from != node {
			add(all, h.clients)
		}
	}
	return all
}

func add(to, more map[string]bool) {
	for key, waits := range more {
		to[key] = to[key] || waits
	}
}

// leastOf returns the least that one of these has had who waits, and the weight of all.
func (q *queue) leastOf(clients map[string]bool) (least, weight float64) {
	least = -1
	for key, waits := range clients {
		weight += q.weight(key)
		if s := q.of[key]; waits && s != nil && (least < 0 || s.served < least) {
			least = s.served
		}
	}
	return least, weight
}

// weight returns a client's weight: its slot-seconds count as so many times fewer.
func (q *queue) weight(key string) float64 {
	if w := q.limits.Weights[key]; w > 0 {
		return w
	}
	return 1
}

// lookAround takes in, at home, who is elsewhere.
func (q *queue) lookAround(now time.Time) {
	for node, h := range q.heard {
		if now.Sub(h.at) >= sharesKeep {
			delete(q.heard, node)
		}
	}
	elsewhere := q.but(0)
	q.at = now
	q.least, q.active = q.leastOf(elsewhere)
	for key, s := range q.of {
		s.unsent, s.elsewhere = 0, elsewhere[key]
	}
}

// learn takes in home's answer to what was told.
func (q *shares) learn(now time.Time, sent told, in totals) {
	q.start, q.least, q.active, q.at = max(q.start, in.Start), in.Least, in.Active, now
	for i, c := range in.Clients {
		if i >= len(sent.Clients) {
			return
		}
		if s := q.of[string(sent.Clients[i].Client)]; s != nil {
			s.unsent -= sent.Clients[i].More
			s.served, s.elsewhere = c.Served+s.unsent, c.Elsewhere
		}
	}
}

// forget drops clients that are not here and have no more than one who comes.
func (q *shares) forget(here map[string]bool) {
	for key, s := range q.of {
		if _, is := here[key]; !is && s.unsent == 0 && !s.elsewhere && (s.served <= q.start || len(q.of) > maxShares) {
			delete(q.of, key)
		}
	}
}
