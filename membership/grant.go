package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership/lease"
)

// grants is the leader's end of the leases: it drives a lease.Grantor for each
// term that this gateway leads.
type grants struct {
	c *Cluster
	// wake tells the goroutine that asks the voters.
	wake chan struct{}

	mu      sync.Mutex
	grantor *lease.Grantor // nil while this gateway does not lead
	last    *lease.Grantor // of the term that it has led last
	view    uint64         // number of the view that grantor has followed
	viewed  time.Duration  // since when
	waiting map[kmutex.Node]waiter
	reports map[kmutex.Node]report
	// lost is since when this leader knows of a loss.
	lost map[kmutex.Node]time.Duration
}

// waiter is whoever waits for the newest renewal of a member.
type waiter struct {
	tag  uint64
	done chan bool
}

// report is what a member said about its links with its newest renewal.
type report struct {
	at   time.Duration
	down []kmutex.Node
	view uint64 // the newest that it knows
}

// errUnconfirmed means that this gateway could not make sure that it leads.
var errUnconfirmed = errors.New("membership: the lead could not be confirmed")

func newGrants(c *Cluster) *grants { return &grants{c: c, wake: make(chan struct{}, 1)} }

// begin takes the lead in a term. Everything that was committed before it must
// be in the view.
func (g *grants) begin(term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop()
	now := g.c.tenure.clock()
	if g.last != nil {
		g.grantor = g.last.Again(term, now)
	}
	if g.grantor == nil {
		g.grantor = lease.NewGrantor(g.c.terms(g.c.View()), term, now)
		g.lost = make(map[kmutex.Node]time.Duration)
	}
	g.last = g.grantor
	g.waiting = make(map[kmutex.Node]waiter)
	g.reports = make(map[kmutex.Node]report)
	g.view = 0
	g.follow()
}

// end gives the lead up.
func (g *grants) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop()
}

func (g *grants) drop() {
	for _, w := range g.waiting {
		close(w.done)
	}
	g.grantor, g.waiting = nil, nil
}

// leads reports that this gateway leads the term and has caught up.
func (g *grants) leads(term uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leading() && g.grantor.Term() == term
}

// leading reports that the grantor's word counts, as far as can be known
// without asking. The caller holds mu.
func (g *grants) leading() bool {
	return g.grantor != nil && !g.grantor.Deposed() &&
		g.c.raft.State() == raft.Leader && g.c.raft.CurrentTerm() == g.grantor.Term()
}

// follow has the grantor see the newest view. The caller holds mu.
func (g *grants) follow() {
	v := g.c.View()
	if g.view == v.Number && g.view != 0 {
		return
	}
	now := g.c.tenure.clock()
	g.view, g.viewed = v.Number, now
	members := make([]kmutex.Node, len(v.Members))
	for i, m := range v.Members {
		members[i] = m.Node
	}
	g.grantor.Follow(members, v.leased(), now)
	known := make(map[kmutex.Node]time.Duration)
	for _, node := range v.owing() {
		at, seen := g.lost[node]
		if !seen {
			at = now
		}
		known[node] = at
	}
	g.lost = known
	for node := range g.reports {
		if _, in := v.Member(node); !in {
			delete(g.reports, node)
		}
	}
}

// ask takes in a renewal and waits for what becomes of it.
func (g *grants) ask(ctx context.Context, p plea) error {
	done, err := g.receive(p)
	if err != nil {
		return err
	}
	select {
	case granted := <-done:
		if !granted {
			return errUnconfirmed
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *grants) receive(p plea) (<-chan bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leading() {
		return nil, raft.ErrNotLeader
	}
	g.follow()
	if _, gone := g.c.View().Gone(p.Node); gone {
		return nil, errLost
	}
	now := g.c.tenure.clock()
	if !g.grantor.Receive(p.Renewal, now) {
		return nil, fmt.Errorf("%w: node %d is not in the view", ErrCommand, p.Node)
	}
	g.reports[p.Node] = report{at: now, down: p.Down, view: p.View}
	if before, waits := g.waiting[p.Node]; waits {
		close(before.done)
	}
	done := make(chan bool, 1)
	g.waiting[p.Node] = waiter{p.Tag, done}
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return done, nil
}

// rounds asks the voters, as long as there are renewals to grant.
func (g *grants) rounds() {
	for {
		select {
		case <-g.c.closing.Done():
			g.end()
			return
		case <-g.wake:
		}
		for g.round() {
		}
	}
}

// round makes sure that this gateway led after the renewals were received, and
// grants them. It reports whether it did something.
func (g *grants) round() bool {
	servers := g.c.servers()
	g.mu.Lock()
	if !g.leading() || !g.grantor.Waiting() {
		g.mu.Unlock()
		return false
	}
	var voters []string
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, string(s.ID))
		}
	}
	grantor := g.grantor
	number := grantor.Begin(voters)
	g.mu.Unlock()

	ctx, cancel := context.WithTimeout(g.c.closing, g.c.config.CallTimeout)
	defer cancel()
	type said struct {
		voter string
		term  uint64
		err   error
	}
	terms := make(chan said, len(voters))
	for _, voter := range voters {
		g.c.wg.Go(func() {
			term, err := g.c.termOf(ctx, voter)
			terms <- said{voter, term, err}
		})
	}
	for range voters {
		s := <-terms
		if s.err == nil && g.answer(grantor, number, s.voter, s.term) {
			return true
		}
	}
	return true // those that wait try again
}

// answer takes in what a voter said; it reports whether the round is decided.
func (g *grants) answer(grantor *lease.Grantor, number uint64, voter string, term uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.grantor != grantor {
		return true
	}
	g.follow()
	granted, decided := grantor.Answer(number, voter, term)
	if grantor.Deposed() {
		g.c.machine.touch() // raft knows it soon; or it was an error, and it takes the lead anew
	}
	for _, r := range granted {
		if w, waits := g.waiting[r.Node]; waits && w.tag == r.Tag {
			w.done <- true
			delete(g.waiting, r.Node)
		}
	}
	return decided
}

// termOf asks a voter which term it is in.
func (c *Cluster) termOf(ctx context.Context, server string) (uint64, error) {
	if server == c.storage.meta.Server {
		return c.raft.CurrentTerm(), nil
	}
	addr, ok := c.addressOf(raft.ServerID(server))
	if !ok {
		return 0, fmt.Errorf("membership: no address of %s", server)
	}
	var t termAnswer
	err := c.call(ctx, http.MethodGet, addr, pathTerm+"?server="+url.QueryEscape(server), nil, &t)
	return t.Term, err
}

type termAnswer struct {
	Term uint64 `json:"term"`
}

// serveTerm answers a leader that wants to know whether it still is one. Only
// the server that was meant may answer: another incarnation has other votes.
func (c *Cluster) serveTerm(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("server") != c.storage.meta.Server {
		http.Error(w, "another server is here", http.StatusMisdirectedRequest)
		return
	}
	writeJSON(w, http.StatusOK, termAnswer{Term: c.raft.CurrentTerm()})
}

func (c *Cluster) serveLease(w http.ResponseWriter, r *http.Request) {
	var p plea
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err == nil && len(p.Down) > maxDown {
		err = fmt.Errorf("%w: %d links are down", ErrCommand, len(p.Down))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.config.CallTimeout)
	defer cancel()
	switch err := c.grants.ask(ctx, p); {
	case err == nil:
		writeJSON(w, http.StatusOK, answer{Granted: true})
	case errors.Is(err, errLost):
		writeJSON(w, http.StatusOK, answer{Lost: true})
	default:
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
	}
}
