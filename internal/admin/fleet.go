package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/kgate/kgate/internal/peercall"
)

// What people see is the whole fleet. Each gateway puts its own picture together
// by asking the others, once a second at most, however many look, and not at all
// while nobody does.

// Peers reach the handlers of other gateways that [NewPeerHandler] returns.
type Peers interface {
	// CallFleet asks the named gateway, by POST if there is a body. The answer
	// goes into into.
	CallFleet(ctx context.Context, gateway, path string, body, into any) error
}

const (
	// keepRound is how long the answers of a round serve: a little less than a
	// second, so that who comes once a second finds them new.
	keepRound = 900 * time.Millisecond
	// roundFor bounds a round: who has not answered by then is missing.
	roundFor = 500 * time.Millisecond
	// askedAtOnce bounds the questions of a round that are under way.
	askedAtOnce = 16
)

// fleet asks the other gateways.
type fleet struct {
	source Source
	lines  Lines
	peers  Peers

	mu     sync.Mutex // guards rounds
	rounds map[question]*round
}

// question is what the gateways are asked: their reports, with so many entries
// of one pool, or of all.
type question struct {
	pool    string
	entries int
}

// round is the answers to a question. Whoever fills turn may read and write the
// others.
type round struct {
	turn    chan struct{}
	at      time.Time
	reports map[string]Report // by gateway, without entries
	missing []string
	entries map[string]Entries // by pool, of all gateways
}

func newFleet(cfg Config) *fleet {
	return &fleet{source: cfg.Source, lines: cfg.Lines, peers: cfg.Peers, rounds: make(map[question]*round)}
}

// status returns the whole fleet's. What is said of this gateway alone is as it
// is now.
func (f *fleet) status(ctx context.Context) (Status, error) {
	s, _, err := f.look(ctx, question{})
	return s, err
}

// line returns who is in a pool.
func (f *fleet) line(ctx context.Context, pool string) (Line, error) {
	if !slices.ContainsFunc(f.source.Report("", 0).Status.Pools, func(p Pool) bool { return p.Name == pool }) {
		return Line{}, fmt.Errorf("%w: there is no pool %.100q", ErrUnknown, pool)
	}
	s, entries, err := f.look(ctx, question{pool, entriesShown})
	if err != nil {
		return Line{}, err
	}
	return lineOf(s, pool, entries[pool])
}

func lineOf(s Status, pool string, e Entries) (Line, error) {
	i := slices.IndexFunc(s.Pools, func(p Pool) bool { return p.Name == pool })
	if i < 0 {
		return Line{}, fmt.Errorf("%w: there is no pool %.100q", ErrUnknown, pool)
	}
	p := s.Pools[i]
	return Line{
		Pool: p.Name, K: p.K, InFlight: p.Fleet.InFlight, Waiting: p.Fleet.Waiting, Missing: p.Fleet.Missing,
		Line: list(e.Waiting), Holders: list(e.Holding),
	}, nil
}

// look puts the status together, and who is in the pools of the question.
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
		// Others wait for it, too, so it goes on when this client leaves.
		f.ask(context.WithoutCancel(ctx), r, q)
	}
	reports, missing, entries := r.reports, r.missing, r.entries
	<-r.turn
	return merge(f.source.Report("", 0).Status, reports, missing), entries, nil
}

// ask fills a round with new answers.
func (f *fleet) ask(ctx context.Context, r *round, q question) {
	ctx, cancel := context.WithTimeout(ctx, roundFor)
	defer cancel()
	self := f.source.Report(q.pool, q.entries)
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
		err := f.peers.CallFleet(ctx, m.Name, path, nil, &report)
		take(m.Name, report, err)
	}, func(m Member) { take(m.Name, Report{}, ErrUnavailable) })
	slices.Sort(r.missing)
	for _, e := range r.entries {
		e.number()
	}
	r.at = time.Now()
}

// each calls do for the other members of the cluster, some at a time, and
// unreachable for those whose links are down: they would only use up the time.
func (f *fleet) each(ctx context.Context, members []Member, do func(context.Context, Member), unreachable func(Member)) {
	var reached []Member
	for _, m := range members {
		switch {
		case m.Self || m.Status != StatusAlive:
		case !m.LinkUp:
			unreachable(m)
		default:
			reached = append(reached, m)
		}
	}
	peercall.Each(reached, askedAtOnce, func(_ int, m Member) { do(ctx, m) })
}

// cancel takes somebody out of the line, wherever that is.
func (f *fleet) cancel(ctx context.Context, id string) error {
	at, err := f.lines.Gateway(id)
	if err != nil {
		return err
	}
	if at == f.source.Report("", 0).Status.Gateway.Name {
		return f.lines.Cancel(id)
	}
	var answer cancelAnswer
	if err := f.peers.CallFleet(ctx, at, "/cancel", cancelCall{ID: id}, &answer); err != nil {
		return fmt.Errorf("%w: %s does not answer", ErrUnavailable, at)
	}
	if !answer.Done {
		return fmt.Errorf("%w: it waits no longer", ErrUnknown)
	}
	return nil
}

// find returns who has a request of the trace, at any gateway.
func (f *fleet) find(ctx context.Context, trace string) (pool string, found Entries) {
	if pool, found = f.lines.Find(trace); pool != "" {
		return pool, found
	}
	ctx, cancel := context.WithTimeout(ctx, roundFor)
	defer cancel()
	var mu sync.Mutex
	path := "/trace?" + url.Values{"id": {trace}}.Encode()
	f.each(ctx, f.source.Report("", 0).Status.Cluster.Members, func(ctx context.Context, m Member) {
		var answer traceAnswer
		if f.peers.CallFleet(ctx, m.Name, path, nil, &answer) != nil || answer.Pool == "" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		pool, found = answer.Pool, answer.Found
	}, func(Member) {})
	return pool, found
}

type (
	cancelCall   struct{ ID string }
	cancelAnswer struct{ Done bool }
	traceAnswer  struct {
		Pool  string
		Found Entries
	}
)

// NewPeerHandler returns what answers the [Peers] of other gateways. It is for
// the peer port alone: it asks for no token.
func NewPeerHandler(source Source, lines Lines) http.Handler {
	r := chi.NewRouter()
	r.Get("/report", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		entries, _ := strconv.Atoi(q.Get("entries")) // 0: none
		writeJSON(w, http.StatusOK, source.Report(q.Get("pool"), max(0, min(entries, entriesShown))))
	})
	r.Get("/trace", func(w http.ResponseWriter, r *http.Request) {
		var answer traceAnswer
		answer.Pool, answer.Found = lines.Find(r.URL.Query().Get("id"))
		writeJSON(w, http.StatusOK, answer)
	})
	r.Post("/cancel", func(w http.ResponseWriter, r *http.Request) {
		var call cancelCall
		r.Header.Set("Content-Type", "application/json") // peers send nothing else
		if err := readJSON(w, r, &call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		writeJSON(w, http.StatusOK, cancelAnswer{Done: lines.Cancel(call.ID) == nil})
	})
	return r
}
