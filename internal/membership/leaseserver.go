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

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/peercert"
	"github.com/kgate/kgate/kmutex"
)

// leaseServer is the leader's end of the leases: it drives a lease.Grantor for each
// term that this gateway leads.
type leaseServer struct {
	c *Cluster
	// wake tells the goroutine that asks the voters.
	wake chan struct{}

	mu      sync.Mutex
	grantor *lease.Grantor // nil while this gateway does not lead
	last    *lease.Grantor // of the term that it has led last
	rules   *leader.Rules  // of that term
	view    uint64         // number of the view that they have followed
	waiting map[kmutex.Node]waiter
	// asking counts the questions to a voter that have no answer yet.
	asking map[string]int
}

// waiter is whoever waits for the newest renewal of a member.
type waiter struct {
	tag  uint64
	done chan bool
}

// errUnconfirmed means that this gateway could not make sure that it leads.
var errUnconfirmed = errors.New("membership: the lead could not be confirmed")

func newLeaseServer(c *Cluster) *leaseServer {
	return &leaseServer{c: c, wake: make(chan struct{}, 1), asking: make(map[string]int)}
}

// begin takes the lead in a term. Everything that was committed before it must
// be in the view.
func (g *leaseServer) begin(term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop()
	now := g.c.incarnation.clock()
	if g.last != nil {
		g.grantor = g.last.Again(term)
	}
	terms := g.c.terms(g.c.View())
	if g.grantor == nil {
		g.grantor = lease.NewGrantor(terms, term, now)
	}
	g.last = g.grantor
	g.rules = leader.New(terms, g.grantor, g.rules, now)
	g.waiting = make(map[kmutex.Node]waiter)
	g.view = 0
	g.follow()
}

// end gives the lead up.
func (g *leaseServer) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop()
}

func (g *leaseServer) drop() {
	for _, w := range g.waiting {
		close(w.done)
	}
	g.grantor, g.waiting = nil, nil
}

// leads reports that this gateway leads the term and has caught up.
func (g *leaseServer) leads(term uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leading() && g.grantor.Term() == term
}

// leading reports that the grantor's word counts, as far as can be known
// without asking. The caller holds mu.
func (g *leaseServer) leading() bool {
	return g.grantor != nil && !g.grantor.Deposed() &&
		g.c.raft.State() == raft.Leader && g.c.raft.CurrentTerm() == g.grantor.Term()
}

// follow has the rules see the newest view. The caller holds mu.
func (g *leaseServer) follow() {
	v := g.c.View()
	if g.view == v.Number && g.view != 0 {
		return
	}
	g.view = v.Number
	g.rules.Follow(v.forRules(), g.c.incarnation.clock())
}

// ask takes in a renewal and waits for what becomes of it.
func (g *leaseServer) ask(ctx context.Context, p renewalRequest) error {
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

func (g *leaseServer) receive(p renewalRequest) (<-chan bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leading() {
		return nil, raft.ErrNotLeader
	}
	g.follow()
	if _, gone := g.c.View().LostMember(p.Node); gone {
		return nil, errNotMember
	}
	now := g.c.incarnation.clock()
	if !g.rules.Receive(p.Renewal, leader.Report{View: p.View, Down: p.Down, Missing: p.Missing}, now) {
		return nil, fmt.Errorf("%w: node %d is not in the view", ErrCommand, p.Node)
	}
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

// rounds asks the voters, as long as there are renewals to grant. Two rounds begin
// roundGap apart at least: one round answers all renewals that came before it.
func (g *leaseServer) rounds() {
	gap := time.NewTimer(0)
	defer gap.Stop()
	for {
		select {
		case <-g.c.closing.Done():
			g.end()
			return
		case <-g.wake:
		}
		for again := true; again; {
			select {
			case <-g.c.closing.Done():
				g.end()
				return
			case <-gap.C:
			}
			gap.Reset(roundGap(g.c.lease()))
			again = g.round()
		}
	}
}

// roundGap is the least time between two rounds.
func roundGap(lease time.Duration) time.Duration { return lease / 20 }

// askAgainAfter is how long a round waits for a majority before it asks once more, over
// other connections: those in use may be dead.
func askAgainAfter(lease time.Duration) time.Duration { return lease / 5 }

// asksPerVoter bounds the questions to a voter that have no answer yet. The control
// client keeps idle connections for them and for as many other calls.
const asksPerVoter = 2

// termSaid is a voter's answer in a round.
type termSaid struct {
	voter string
	term  uint64
	err   error
}

// round makes sure that this gateway led after the renewals were received, and
// grants them. It reports whether there may be more to do.
func (g *leaseServer) round() bool {
	g.mu.Lock()
	if !g.leading() || !g.grantor.Waiting() {
		g.mu.Unlock()
		return false
	}
	var voters []string
	grantor := g.grantor
	number := grantor.Begin(func() []string {
		voters = g.c.voters()
		return voters
	})
	g.mu.Unlock()

	q := &questions{g: g, voters: voters, answers: make(chan termSaid, asksPerVoter*len(voters))}
	q.ask()
	began := q.open > 0
	again := time.NewTimer(askAgainAfter(g.c.lease()))
	defer again.Stop()
	for q.open > 0 {
		select {
		case s := <-q.answers:
			q.open--
			if s.err == nil && g.answer(grantor, number, s.voter, s.term) {
				return true
			}
		case <-again.C:
			q.ask()
		}
	}
	return began // those that wait try again
}

// questions are those of one round.
type questions struct {
	g       *leaseServer
	voters  []string
	open    int // questions without an answer
	answers chan termSaid
}

// ask asks the voters that do not owe too many answers.
func (q *questions) ask() {
	g := q.g
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, voter := range q.voters {
		if g.asking[voter] >= asksPerVoter {
			continue
		}
		q.open++
		g.asking[voter]++
		g.c.wg.Go(func() { q.answers <- g.askVoter(voter) })
	}
}

// askVoter asks a voter for its term. It waits for the answer also when the round
// is decided: giving up would cost the connection, and the next question another
// handshake.
func (g *leaseServer) askVoter(voter string) termSaid {
	ctx, cancel := context.WithTimeout(g.c.closing, g.c.config.CallTimeout)
	defer cancel()
	t, err := g.c.termOf(ctx, voter)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking[voter]--; g.asking[voter] == 0 {
		delete(g.asking, voter)
	}
	return termSaid{voter, t.Term, err}
}

// voters returns the ids of raft's voters.
func (c *Cluster) voters() []string {
	var voters []string
	for _, s := range c.servers() {
		if s.Suffrage == raft.Voter {
			voters = append(voters, string(s.ID))
		}
	}
	return voters
}

// answer takes in what a voter said; it reports whether the round is decided.
func (g *leaseServer) answer(grantor *lease.Grantor, number uint64, voter string, term uint64) bool {
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
	if decided {
		g.rules.Confirmed()
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
func (c *Cluster) termOf(ctx context.Context, server string) (termAnswer, error) {
	if server == c.storage.meta.Server {
		return c.term(), nil
	}
	addr, ok := c.addressOf(raft.ServerID(server))
	if !ok {
		return termAnswer{}, fmt.Errorf("membership: no address of %s", server)
	}
	var t termAnswer
	err := c.call(ctx, http.MethodGet, addr, pathTerm+"?server="+url.QueryEscape(server), nil, &t)
	return t, err
}

// termAnswer is what a voter says about the term that it is in.
type termAnswer struct {
	Term uint64 `json:"term"`
	// Leaderless: it has no leader. Last is the index of the newest entry of its log.
	Leaderless bool   `json:"leaderless,omitempty"`
	Last       uint64 `json:"last"`
	// Leader is the server that it follows, itself if it leads; empty if there is none.
	// HandsOver are the servers that it has handed the lead over to in Term.
	Leader    string   `json:"leader,omitempty"`
	HandsOver []string `json:"hands_over,omitempty"`
	// Voted is the server that it has voted for in Term, empty if none. Older gateways
	// do not say it.
	Voted *string `json:"voted"`
}

func (c *Cluster) term() termAnswer {
	voted, in := c.voted() // before the term: so a vote given in it is not missed
	a := termAnswer{Term: c.raft.CurrentTerm(), Leaderless: c.leaderless(), Last: c.raft.LastIndex(), Leader: c.follows()}
	if in != a.Term {
		voted = ""
	}
	a.Voted = &voted
	if h := c.handsOver.Load(); h != nil && h.term == a.Term {
		a.HandsOver = h.to
	}
	return a
}

// serveTerm answers a leader that wants to know whether it still is one, and voters
// that have none. Only the server that was meant may answer: another incarnation has
// other votes.
func (c *Cluster) serveTerm(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("server") != c.storage.meta.Server {
		http.Error(w, "another server is here", http.StatusMisdirectedRequest)
		return
	}
	if !c.called() || c.behind() != nil {
		http.Error(w, "this gateway may have lost what it has voted for", http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusOK, c.term())
}

func (c *Cluster) serveLease(w http.ResponseWriter, r *http.Request) {
	var p renewalRequest
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err == nil && max(len(p.Down), len(p.Missing)) > maxComplaints {
		err = fmt.Errorf("%w: %d links are down, %d reports are missing", ErrCommand, len(p.Down), len(p.Missing))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if m, in := c.View().Member(p.Node); in && peercert.OfState(r.TLS, m.Name) != nil {
		http.Error(w, "a gateway renews its own lease only", http.StatusForbidden)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.config.CallTimeout)
	defer cancel()
	switch err := c.leases.ask(ctx, p); {
	case err == nil:
		writeJSON(w, http.StatusOK, renewalAnswer{Granted: true})
	case errors.Is(err, errNotMember):
		writeJSON(w, http.StatusOK, renewalAnswer{Lost: true})
	default:
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
	}
}
