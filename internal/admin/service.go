package admin

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Upstream is the state of an upstream of a pool as one gateway sees it, or in Fleet as all do.
type Upstream struct {
	URL string `json:"url"`
	// Up tells whether requests are sent there. If not, DownSeconds is for how long, Why is the
	// result of the last check or request, and, in Fleet, DownAt lists the gateways where it is
	// down.
	Up          bool     `json:"up"`
	DownSeconds float64  `json:"down_seconds,omitempty"`
	Why         string   `json:"why,omitempty"`
	DownAt      []string `json:"down_at,omitempty"`
	InFlight    int      `json:"in_flight"`
	// K is how many requests it may get from all gateways together; absent: it has no k of its
	// own. SlotsInUse counts the slots in use for it, tickets' slots included.
	K          *int `json:"k,omitempty"`
	SlotsInUse int  `json:"slots_in_use"`
	// Unanswered counts the requests in flight that wait for an answer's header. None has come
	// for QuietSeconds while requests waited. The last came AnsweredSeconds ago; 0: none has.
	Unanswered      int     `json:"unanswered"`
	QuietSeconds    float64 `json:"quiet_seconds,omitempty"`
	AnsweredSeconds float64 `json:"answered_seconds,omitempty"`
	// Recent counts the requests that were sent there.
	Recent Recent `json:"recent"`
	// Header sums up how long the headers of answers took in the last 60 seconds, Usual in
	// the quarter of an hour before.
	Header Times `json:"header"`
	Usual  Times `json:"usual"`
}

// Recent counts requests that ended in the last 60 seconds.
type Recent struct {
	// Ended counts requests that ended with an answer of an upstream or for lack of one, not
	// requests whose client left before.
	Ended uint64 `json:"ended"`
	// Errors counts 5xx answers of the upstream, Failed requests that got 502 or 504 from the
	// gateway, Refused requests that were not sent, and Full those refused because the queue was
	// full.
	Errors  uint64 `json:"errors"`
	Failed  uint64 `json:"failed"`
	Refused uint64 `json:"refused"`
	Full    uint64 `json:"full"`
}

func (r *Recent) add(o Recent) {
	r.Ended += o.Ended
	r.Errors += o.Errors
	r.Failed += o.Failed
	r.Refused += o.Refused
	r.Full += o.Full
}

// bad returns the share of requests that the upstream failed.
func (r Recent) bad() float64 { return float64(r.Errors+r.Failed) / float64(max(1, r.Ended)) }

// Times is a number of durations and their mean.
type Times struct {
	Count      uint64  `json:"count"`
	MeanMillis float64 `json:"mean_ms"`
}

func (t *Times) add(o Times) {
	if n := t.Count + o.Count; n > 0 {
		t.MeanMillis = (t.MeanMillis*float64(t.Count) + o.MeanMillis*float64(o.Count)) / float64(n)
		t.Count = n
	}
}

// Client is the client with most of a pool's places, waiting or in flight, and the number of all
// places.
type Client struct {
	Name   string `json:"name"`
	Places int    `json:"places"`
	Of     int    `json:"of"`
}

// mergeUpstreams adds one gateway's upstreams to the others'.
func mergeUpstreams(all []Upstream, gateway string, its []Upstream) []Upstream {
	for _, u := range its {
		if !u.Up {
			u.DownAt = []string{gateway}
		}
		i := slices.IndexFunc(all, func(o Upstream) bool { return o.URL == u.URL })
		if i < 0 {
			all = append(all, u)
			continue
		}
		o := &all[i]
		if !u.Up {
			o.DownAt = append(o.DownAt, gateway)
			o.DownSeconds, o.Why = max(o.DownSeconds, u.DownSeconds), cmp.Or(o.Why, u.Why)
		}
		o.QuietSeconds = max(o.QuietSeconds, u.QuietSeconds) // a gateway that has just begun to ask knows little
		if o.AnsweredSeconds == 0 || u.AnsweredSeconds > 0 && u.AnsweredSeconds < o.AnsweredSeconds {
			o.AnsweredSeconds = u.AnsweredSeconds
		}
		o.Up = o.Up || u.Up
		o.InFlight += u.InFlight
		o.K, o.SlotsInUse = cmp.Or(o.K, u.K), o.SlotsInUse+u.SlotsInUse
		o.Unanswered += u.Unanswered
		o.Recent.add(u.Recent)
		o.Header.add(u.Header)
		o.Usual.add(u.Usual)
	}
	return all
}

// largest returns the client with most places over all gateways, from each gateway's largest client.
func largest(of []PoolPart) Client {
	var most Client
	all, places := 0, make(map[string]int)
	for _, p := range of {
		if p.Client.Places == 0 {
			continue
		}
		all += p.Client.Of
		n := places[p.Client.Name] + p.Client.Places
		if places[p.Client.Name] = n; n > most.Places {
			most.Name, most.Places = p.Client.Name, n
		}
	}
	most.Of = all
	return most
}

// The bounds beyond which an upstream counts as slow, quiet, failing or crowded.
const (
	badShare     = 0.05
	slowFactor   = 5
	slowLeast    = 50 // ms above the usual
	usualLeast   = 10 // answers, to speak of the usual
	quietLeast   = 10 // seconds
	crowdedShare = 0.8
)

// The words for an upstream's state.
const (
	UpstreamUp      = "up"
	upstreamDown    = "down"
	UpstreamSilent  = "silent"
	UpstreamFailing = "failing"
	UpstreamSlow    = "slow"
)

// Busy says how many requests are in flight at the upstream or, where it has a k of its own, how many
// of its slots are in use.
func (u Upstream) Busy() string {
	if u.K == nil {
		return strconv.Itoa(u.InFlight)
	}
	return fmt.Sprintf("%d of %d", u.SlotsInUse, *u.K)
}

// Word describes an upstream in one word.
func (u Upstream) Word() string {
	usual := 0.0
	if u.Usual.Count >= usualLeast {
		usual = u.Usual.MeanMillis
	}
	switch {
	case !u.Up:
		return upstreamDown
	case u.Unanswered > 0 && u.Quiet() > max(quietLeast, slowFactor*usual/1000):
		return UpstreamSilent
	case u.Recent.bad() > badShare:
		return UpstreamFailing
	case len(u.DownAt) > 0:
		return upstreamDown + " at " + strings.Join(u.DownAt, ", ")
	case usual > 0 && u.Header.Count > 0 && u.Header.MeanMillis > slowFactor*usual && u.Header.MeanMillis > usual+slowLeast:
		return UpstreamSlow
	default:
		return UpstreamUp
	}
}

// ErrorsPerSecond returns the mean rate of failed requests over the last 60 seconds.
func (u Upstream) ErrorsPerSecond() float64 { return float64(u.Recent.Errors+u.Recent.Failed) / 60 }

// Quiet returns for how many seconds the upstream has answered no gateway while requests wait.
func (u Upstream) Quiet() float64 {
	if u.AnsweredSeconds > 0 {
		return min(u.QuietSeconds, u.AnsweredSeconds)
	}
	return u.QuietSeconds
}

// trouble describes an upstream's fault in a sentence; empty: it has none.
func (u Upstream) trouble() string {
	switch u.Word() {
	case UpstreamUp:
		return ""
	case UpstreamSilent:
		return fmt.Sprintf("%s has not answered for %s; %s for an answer", u.URL, Seconds(u.Quiet()), count(u.Unanswered, "request waits", "requests wait"))
	case UpstreamFailing:
		of := count(int(min(u.Recent.Ended, math.MaxInt32)), "request", "requests")
		switch {
		case u.Recent.Failed == 0:
			return fmt.Sprintf("%s answered %d of %s in 60 s with 5xx", u.URL, u.Recent.Errors, of)
		case u.Recent.Errors == 0:
			return fmt.Sprintf("%s gave no answer to %d of %s in 60 s", u.URL, u.Recent.Failed, of)
		default:
			return fmt.Sprintf("%s answered %d of %s in 60 s with 5xx, and gave no answer to %d", u.URL, u.Recent.Errors, of, u.Recent.Failed)
		}
	case UpstreamSlow:
		return fmt.Sprintf("%s takes %s to answer, usually %s", u.URL, Millis(u.Header.MeanMillis), Millis(u.Usual.MeanMillis))
	default: // down somewhere
		where := ""
		if u.Up {
			where = " at " + strings.Join(u.DownAt, ", ")
		}
		why := ""
		if u.Why != "" {
			why = ": " + u.Why
		}
		return fmt.Sprintf("%s is down%s, for %s%s", u.URL, where, Seconds(u.DownSeconds), why)
	}
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// service describes the faults that clients of a pool notice, the worst first.
func (p Pool) service() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, p.Name+": "+fmt.Sprintf(format, args...)+".") }
	f := p.Fleet
	ups := slices.SortedStableFunc(slices.Values(f.Upstreams), func(a, b Upstream) int { return severity(b) - severity(a) })
	down := 0
	for _, u := range ups {
		if !u.Up {
			down++
		}
	}
	if down > 1 && down == len(ups) {
		say("all %d upstreams are down", down)
	}
	for _, u := range ups {
		if t := u.trouble(); t != "" {
			say("%s", t)
		}
	}
	if f.TicketsHolding > 0 && f.TicketsHolding >= p.K && f.Waiting > 0 {
		say("tickets hold all %s, one for %s; %s", count(p.K, "slot", "slots"), Seconds(f.OldestHoldSeconds), count(f.Waiting, "request waits", "requests wait"))
	}
	switch c := f.Client; {
	case c.Places <= 2*p.K || float64(c.Places) < crowdedShare*float64(c.Of):
	case f.Recent.Full > 0:
		say("the client %s has %d of %d places, and the queue was full: %d refused in 60 s", c.Name, c.Places, c.Of, f.Recent.Full)
	case c.Places < c.Of && len(f.Shares) == 0: // in the order fair its places cost others nothing
		say("the client %s has %d of %d places; others wait", c.Name, c.Places, c.Of)
	}
	return out
}

// severity orders upstreams by their state: down comes first.
func severity(u Upstream) int {
	switch u.Word() {
	case UpstreamUp:
		return 0
	case upstreamDown:
		return 3
	case UpstreamSilent, UpstreamFailing:
		return 2
	default:
		return 1
	}
}

// Answers describes how the pool's recent requests ended; empty: none has ended.
func (f PoolFleet) Answers() string {
	r := f.Recent
	if r.Ended+r.Refused == 0 {
		return ""
	}
	return fmt.Sprintf("%d answered with 5xx by the upstream, %d with 502 or 504 here, %d refused, of %d in 60 s", r.Errors, r.Failed, r.Refused, r.Ended+r.Refused)
}
