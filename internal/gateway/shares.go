package gateway

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// In the order fair a client's share of the slots is counted over all gateways: the time for which its
// requests have held slots, divided by its weight. The pool's home has the totals. Each gateway tells
// it, a few times a second, what its clients have had since, and is told the totals.
//
// Nobody is behind the start, where all begin: what the least served of those who wait has had. While
// nobody waits it is what the most served has had. So nobody saves up by being away, and nobody owes
// for slots that no other one wanted. (Start-time fair queuing.)

const (
	// sharesEvery is how often a gateway with clients tells home.
	sharesEvery = 250 * time.Millisecond
	// sharesKeep is how long home, and a gateway that home does not answer, go by what they were told.
	sharesKeep = 4 * sharesEvery
	// heardKeep is how long home remembers the number of what a gateway has told.
	heardKeep = time.Minute
	// maxShares is how many clients a gateway tells of at once, and remembers that are not here.
	maxShares = 256
)

// share is what is known of a client. Amounts are slot-seconds, divided by its weight.
type share struct {
	weight float64
	served float64       // over all gateways; not less than shares.start
	unsent float64       // those of them that home does not know of
	hold   time.Duration // moving mean of its holds here
	// owes is what the slots that it holds here have yet to count if it holds them as long as usual, and
	// elsewhere the same at other gateways.
	owes, elsewhere float64
	recent          recent // here
}

// had is what a client has had, and is about to have.
func (s *share) had() float64 { return s.served + s.owes + s.elsewhere }

// amount returns what so much time of a slot counts.
func (s *share) amount(held time.Duration) float64 { return held.Seconds() / s.weight }

// shares are those of a pool's clients, by name. The pool's lock guards them.
type shares struct {
	of map[string]*share
	// start is what a client who comes begins with. Home finds it. It never falls.
	start float64
	// least of those who wait at other gateways, as known since at; negative: nobody does.
	least float64
	at    time.Time
	// active is the weight of those who wait or hold slots at other gateways.
	active float64
	// heard is what other gateways have told, at home.
	heard map[kmutex.Node]heard
}

// heard is what a gateway has told last: the number of that, and who is there.
type heard struct {
	at      time.Time
	number  uint64
	beyond  int // see queue
	clients map[string]presence
}

// presence is that of a client at a gateway, or at several.
type presence struct {
	Waits bool    // for a slot that another one has
	Owes  float64 // see share
}

// told is what a gateway tells home. It is told again until home answers: by its number home knows that
// it has counted it.
type told struct {
	Number  uint64
	Start   float64
	Beyond  int // see queue
	Clients []toldShare
}

type toldShare struct {
	Client []byte
	// Known is what the gateway takes for the total, without More, which is new.
	Known, More float64
	// Here: it waits or holds slots there.
	Here bool
	presence
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
	Elsewhere float64
}

func newShares() shares { return shares{of: make(map[string]*share), least: -1} }

// share returns what is known of a client.
func (q *queue) share(key string) *share {
	s := q.of[key]
	if s == nil {
		s = &share{weight: q.weight(key), served: q.start}
		q.of[key] = s
	}
	return s
}

// charge adds to what a client has had.
func (s *share) charge(amount float64) {
	s.served += amount
	s.unsent += amount
}

// fresh reports whether what home has said of others still counts.
func (q *shares) fresh(now time.Time) bool { return now.Sub(q.at) < sharesKeep }

// floor returns the least that one of those who wait has had, here, as the caller says, or elsewhere.
func (q *shares) floor(now time.Time, here float64) float64 {
	if q.least >= 0 && q.fresh(now) && (here < 0 || q.least < here) {
		return q.least
	}
	return here
}

// tell returns what home is to know: of those who are here, or were. Of the others that are too many
// nothing is remembered: else names without end would fill the memory.
func (q *shares) tell(here map[string]presence) told {
	out := told{Start: q.start}
	for key, s := range q.of {
		p, is := here[key]
		if is || s.unsent != 0 {
			out.Clients = append(out.Clients, toldShare{[]byte(key), s.served - s.unsent, s.unsent, is, p})
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
		for _, c := range out.Clients[maxShares:] {
			if !c.Here {
				delete(q.of, string(c.Client))
			}
		}
		out.Clients = out.Clients[:maxShares]
	}
	return out
}

// hear takes in, at home, what another gateway tells, and returns the totals. Here are home's own
// clients.
func (q *queue) hear(now time.Time, from kmutex.Node, in told, here map[string]presence) totals {
	h := heard{now, in.Number, in.Beyond, make(map[string]presence)}
	counted := q.heard[from].number == in.Number
	q.start = max(q.start, in.Start)
	for _, c := range in.Clients {
		key := string(c.Client)
		s := q.of[key]
		if s == nil {
			s = q.share(key)
			s.served = max(s.served, c.Known)
		}
		if !counted {
			s.served += c.More
		}
		if c.Here {
			h.clients[key] = c.presence
		}
	}
	if q.heard == nil {
		q.heard = make(map[kmutex.Node]heard)
	}
	q.heard[from] = h
	q.lookAround(now, here)
	least := q.leastBeyond(here)
	elsewhere := q.but(from, least)
	add(elsewhere, here, q.beyond <= least)
	out := totals{Start: q.start}
	out.Least, out.Active = q.leastOf(elsewhere, h.clients)
	for _, c := range in.Clients {
		out.Clients = append(out.Clients, total{q.of[string(c.Client)].served, elsewhere[string(c.Client)].Owes})
	}
	return out
}

// leastBeyond returns how many slots are beyond reach of that of the gateways with clients that reaches most.
func (q *queue) leastBeyond(here map[string]presence) int {
	least := math.MaxInt
	if len(here) > 0 {
		least = q.beyond
	}
	for _, h := range q.heard {
		if len(h.clients) > 0 {
			least = min(least, h.beyond)
		}
	}
	return least
}

// but returns the clients at gateways that have told, except one. They wait if no more than the least number
// of slots are beyond their reach.
func (q *shares) but(node kmutex.Node, least int) map[string]presence {
	all := make(map[string]presence)
	for from, h := range q.heard {
		if from != node {
			add(all, h.clients, h.beyond <= least)
		}
	}
	return all
}

func add(to, more map[string]presence, wait bool) {
	for key, p := range more {
		has := to[key]
		to[key] = presence{has.Waits || wait && p.Waits, has.Owes + p.Owes}
	}
}

// leastOf returns the least that one of these has had who waits, and the weight of all. Some are also
// at another gateway.
func (q *queue) leastOf(clients, also map[string]presence) (least, weight float64) {
	least = -1
	for key, p := range clients {
		s := q.share(key)
		weight += s.weight
		if had := s.served + p.Owes + also[key].Owes; p.Waits && (least < 0 || had < least) {
			least = had
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

// lookAround takes in, at home, who is elsewhere, and finds the start.
func (q *queue) lookAround(now time.Time, here map[string]presence) {
	for node, h := range q.heard {
		switch age := now.Sub(h.at); {
		case age >= heardKeep:
			delete(q.heard, node)
		case age >= sharesKeep:
			q.heard[node] = heard{h.at, h.number, 0, nil}
		}
	}
	beyond := q.leastBeyond(here)
	elsewhere := q.but(0, beyond)
	q.at = now
	q.least, q.active = q.leastOf(elsewhere, here)
	least, most := -1.0, q.start
	for key, s := range q.of {
		s.unsent, s.elsewhere = 0, elsewhere[key].Owes
		most = max(most, s.served)
		if (here[key].Waits && q.beyond <= beyond || elsewhere[key].Waits) && (least < 0 || s.served < least) {
			least = s.served
		}
	}
	if least < 0 {
		least = most
	}
	q.begin(least)
}

// begin sets the start.
func (q *shares) begin(start float64) {
	q.start = max(q.start, start)
	for _, s := range q.of {
		s.served = max(s.served, q.start)
	}
}

// learn takes in home's answer to what was told.
func (q *shares) learn(now time.Time, sent told, in totals) {
	q.least, q.active, q.at = in.Least, in.Active, now
	for _, s := range q.of {
		s.elsewhere = 0
	}
	for i, c := range in.Clients {
		if i >= len(sent.Clients) {
			break
		}
		if s := q.of[string(sent.Clients[i].Client)]; s != nil {
			s.unsent -= sent.Clients[i].More
			s.served, s.elsewhere = c.Served+s.unsent, c.Elsewhere
		}
	}
	q.begin(in.Start)
}

// forget drops clients that are not here, have no more than one who comes, and are not worth showing.
func (q *shares) forget(now time.Time, here map[string]presence) {
	for key, s := range q.of {
		if _, is := here[key]; !is && s.unsent == 0 && (s.served <= q.start && s.recent.over(now) || len(q.of) > maxShares) {
			delete(q.of, key)
		}
	}
}
