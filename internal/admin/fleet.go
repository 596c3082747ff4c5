package admin

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/peercall"
)

// Operators see all gateways. Each gateway asks the others: at most every 0.4 s for any number of
// viewers, and not at all without a viewer.

// Peers reach the handlers of other gateways that [NewPeerHandler] returns.
type Peers interface {
	// CallFleet asks the named gateway, by POST if there is a body, and decodes the answer into
	// into.
	CallFleet(ctx context.Context, gateway, path string, body, into any) error
}

const (
	// keepRound is how long the answers of a round are used. With roundFor it bounds their age: a
	// viewer that asks once a second gets new answers, and a lost gateway is missed within a
	// second.
	keepRound = 400 * time.Millisecond
	// roundFor bounds a round: gateways that have not answered by then are missing.
	roundFor = 500 * time.Millisecond
	// roundTrips is how many round trips bound it instead, if that is more, up to roundMost: while a
	// connection gets up to speed a report takes several.
	roundTrips = 5
	roundMost  = 2 * time.Second
	// askedAtOnce bounds the questions of a round that are under way.
	askedAtOnce = 16
)

// fleet asks the other gateways.
type fleet struct {
	Config

	mu     sync.Mutex // guards rounds
	rounds map[question]*round
}

// question asks the gateways for their reports, with at most entries entries of pool, or of each pool
// if pool is empty.
type question struct {
	pool    string
	entries int
}

// round holds the answers to a question. The goroutine that has sent to turn may read and write the
// other fields.
type round struct {
	turn    chan struct{}
	at      time.Time
	reports map[string]Report // by gateway, without entries
	missing []string
	entries map[string]Entries // by pool, of all gateways
}

func newFleet(cfg Config) *fleet {
	return &fleet{Config: cfg, rounds: make(map[question]*round)}
}

// status returns the status of the whole fleet. The part about this gateway is current.
func (f *fleet) status(ctx context.Context) (Status, error) {
	s, _, err := f.look(ctx, question{})
	return s, err
}

// line returns the requests and tickets of a pool, and the pool.
func (f *fleet) line(ctx context.Context, pool string) (Line, *Pool, error) {
	if _, err := f.Source.Report("", 0).Status.pool(pool); err != nil {
		return Line{}, nil, err // a question is remembered, so the pool must exist
	}
	s, entries, err := f.look(ctx, question{pool, entriesShown})
	if err != nil {
		return Line{}, nil, err
	}
	p, err := s.pool(pool)
	if err != nil {
		return Line{}, nil, err
	}
	return Line{
		Pool: p.Name, K: p.K, InFlight: p.Fleet.InFlight, Waiting: p.Fleet.Waiting, Missing: p.Fleet.Missing,
		Line: list(entries[pool].Waiting), Holders: list(entries[pool].Holding),
	}, p, nil
}

// look returns the status, and the entries that q asks for.
func (f *fleet) look(ctx context.Context, q question) (Status, map[string]Entries, error) {
	f.mu.Lock()
	r := f.rounds[q]
	if r == nil {
		r = &round{turn: make(chan struct{}, 1)}
		f.rounds[q] = r
	}
	f.mu.Unlock()
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return Status{}, nil, context.Cause(ctx)
	}
	if time.Since(r.at) > keepRound {
		// Other clients wait for the round, too, so it goes on when this one leaves.
		f.ask(context.WithoutCancel(ctx), r, q)
	}
	reports, missing, entries := r.reports, r.missing, r.entries
	<-r.turn
	return merge(f.Source.Report("", 0).Status, reports, missing), entries, nil
}

// ask fills a round with new answers.
func (f *fleet) ask(ctx context.Context, r *round, q question) {
	self := f.Source.Report(q.pool, q.entries)
	r.reports, r.missing, r.entries = make(map[string]Report), nil, make(map[string]Entries)
	var mu sync.Mutex
	take := func(name string, report Report, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			r.missing = append(r.missing, name)
			return
		}
		for pool, e := range report.Entries {
			all := r.entries[pool]
			all.add(e, q.entries)
			r.entries[pool] = all
		}
		report.Entries = nil
		r.reports[name] = report
	}
	take(self.Status.Gateway.Name, self, nil)
	path := "/report?" + url.Values{"pool": {q.pool}, "entries": {strconv.Itoa(q.entries)}}.Encode()
	f.each(ctx, self.Status.Cluster.Members, func(ctx context.Context, m Member) {
		var report Report
		err := f.Peers.CallFleet(ctx, m.Name, path, nil, &report)
		take(m.Name, report, err)
	}, func(m Member) { take(m.Name, Report{}, ErrUnavailable) })
	slices.Sort(r.missing)
	for _, e := range r.entries {
		e.number()
	}
	r.at = time.Now()
}

// each calls do for the other members of the cluster, some at a time, and unreachable for members
// whose links are down: to ask them would only use up the time. All take at most roundFor, or some
// round trips to the gateway that is farthest away.
func (f *fleet) each(ctx context.Context, members []Member, do func(context.Context, Member), unreachable func(Member)) {
	var reached []Member
	most := roundFor
	for _, m := range members {
		switch {
		case m.Self || m.Status != StatusAlive:
		case !m.LinkUp:
			unreachable(m)
		default:
			reached = append(reached, m)
			if m.RTTMillis != nil {
				most = min(max(most, time.Duration(roundTrips**m.RTTMillis*float64(time.Millisecond))), roundMost)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	peercall.Each(reached, askedAtOnce, func(_ int, m Member) { do(ctx, m) })
}

// cancel takes a request or ticket out of the line, at any gateway.
func (f *fleet) cancel(ctx context.Context, id string) error {
	at, err := f.Lines.Gateway(id)
	if err != nil {
		return err
	}
	if at == f.Source.Report("", 0).Status.Gateway.Name {
		return f.Lines.Cancel(id)
	}
	call, answer := cancelCall{ID: id}, cancelAnswer{}
	if tokens := f.Tokens(); len(tokens) > 0 {
		call.Proof = proofOf(tokens[0], id)
	}
	if err := f.Peers.CallFleet(ctx, at, "/cancel", call, &answer); err != nil {
		return fmt.Errorf("%w: %s does not answer", ErrUnavailable, at)
	}
	if answer.Refused != "" {
		return fmt.Errorf("%w: %s: %s", ErrUnavailable, at, answer.Refused)
	}
	if !answer.Done {
		return fmt.Errorf("%w: it waits no longer", ErrUnknown)
	}
	return nil
}

// find returns the entries of the trace's requests, at any gateway, and their pool.
func (f *fleet) find(ctx context.Context, trace string) (pool string, found Entries) {
	if pool, found = f.Lines.Find(trace); pool != "" {
		return pool, found
	}
	var mu sync.Mutex
	path := "/trace?" + url.Values{"id": {trace}}.Encode()
	f.each(ctx, f.Source.Report("", 0).Status.Cluster.Members, func(ctx context.Context, m Member) {
		var answer traceAnswer
		if f.Peers.CallFleet(ctx, m.Name, path, nil, &answer) != nil || answer.Pool == "" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		pool, found = answer.Pool, answer.Found
	}, func(Member) {})
	return pool, found
}

type (
	cancelCall struct {
		ID    string
		Proof []byte `json:",omitempty"`
	}
	cancelAnswer struct {
		Done    bool
		Refused string `json:",omitempty"`
	}
	traceAnswer struct {
		Pool  string
		Found Entries
	}
)

// proofOf proves to another gateway that a client with the admin token asks to cancel an entry. The
// other gateway does not learn the token, and can use the proof for nothing else.
func proofOf(token, id string) []byte {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("kgate cancel " + id))
	return mac.Sum(nil)
}

// proves reports whether one of the tokens was shown, or none is needed.
func (c cancelCall) proves(tokens []string) bool {
	return len(tokens) == 0 || slices.ContainsFunc(tokens, func(token string) bool { return hmac.Equal(c.Proof, proofOf(token, c.ID)) })
}
