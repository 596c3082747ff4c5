package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// renewalRequest is a renewal with what the member reports.
type renewalRequest struct {
	lease.Renewal
	leader.Report
}

// maxComplaints bounds how many links, and how many reports, a request complains
// about: all of them have room in views.MaxCommand.
const maxComplaints = 256

// renewalAnswer is the leader's answer to a renewalRequest.
type renewalAnswer struct {
	Granted bool `json:"granted"`
	Lost    bool `json:"lost"`
	// Applied is how far the leader has applied the log, and what.
	Applied views.Checkpoint `json:"applied"`
}

// leaseServer is the leader's end of the leases: it drives a lease.Grantor for each
// term that this gateway leads.
type leaseServer struct {
	*raftNode
	leaders     *leaderWatch
	incarnation *incarnation
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

func newLeaseServer(n *raftNode, leaders *leaderWatch, i *incarnation) *leaseServer {
	return &leaseServer{raftNode: n, leaders: leaders, incarnation: i, wake: make(chan struct{}, 1), asking: make(map[string]int)}
}

// begin takes the lead in a term. Everything that was committed before it must
// be in the view.
func (g *leaseServer) begin(term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop()
	now := g.incarnation.clock()
	if g.last != nil {
		g.grantor = g.last.Again(term)
	}
	terms := g.View().Terms()
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

// grantsIn reports that this gateway leads the term and has caught up.
func (g *leaseServer) grantsIn(term uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leading() && g.grantor.Term() == term
}

// leading reports that the grantor's word counts, as far as can be known
// without asking. The caller holds mu.
func (g *leaseServer) leading() bool {
	return g.grantor != nil && !g.grantor.Deposed() &&
		g.leads() && g.raft.CurrentTerm() == g.grantor.Term()
}

// follow has the rules see the newest view. The caller holds mu.
func (g *leaseServer) follow() {
	v := g.View()
	if g.view == v.Number && g.view != 0 {
		return
	}
	g.view = v.Number
	g.rules.Follow(v.ForRules(), g.incarnation.clock())
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
	if _, gone := g.View().LostMember(p.Node); gone {
		return nil, errNotMember
	}
	now := g.incarnation.clock()
	if !g.rules.Receive(p.Renewal, p.Report, now) {
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

// rounds asks the voters, as long as there are renewals to grant. One round answers all
// renewals that came before it: so it begins roundDelay after the first of them, and
// roundGap after the round before it.
func (g *leaseServer) rounds() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var began time.Time
	for {
		select {
		case <-g.closing.Done():
			g.end()
			return
		case <-g.wake:
		}
		for again := true; again; {
			timer.Reset(max(roundGap(g.lease())-time.Since(began), roundDelay(g.lease())))
			select {
			case <-g.closing.Done():
				g.end()
				return
			case <-timer.C:
			}
			began = time.Now()
			again = g.round()
		}
	}
}

// roundGap is the least time between two rounds.
func roundGap(lease time.Duration) time.Duration { return lease / 20 }

// roundDelay is how long a round waits for renewals that come together with the first.
func roundDelay(lease time.Duration) time.Duration { return lease / 200 }

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
		voters = g.voters()
		return voters
	})
	g.mu.Unlock()

	q := &questions{g: g, voters: voters, answers: make(chan termSaid, asksPerVoter*len(voters))}
	q.ask()
	began := q.open > 0
	again := time.NewTimer(askAgainAfter(g.lease()))
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
		g.wg.Go(func() { q.answers <- g.askVoter(voter) })
	}
}

// askVoter asks a voter for its term. It waits for the answer also when the round
// is decided: giving up would cost the connection, and the next question another
// handshake.
func (g *leaseServer) askVoter(voter string) termSaid {
	ctx, cancel := context.WithTimeout(g.closing, g.callTimeout())
	defer cancel()
	t, err := g.leaders.termOf(ctx, voter)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking[voter]--; g.asking[voter] == 0 {
		delete(g.asking, voter)
	}
	return termSaid{voter, t.Term, err}
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
		g.machine.touch() // raft knows it soon; or it was an error, and it takes the lead again
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

// withRules calls do with the leader's rules, which have seen the newest view, and the
// time. It reports whether this gateway leads; if not, it does not call do.
func (g *leaseServer) withRules(do func(r *leader.Rules, now time.Duration)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leading() {
		return false
	}
	g.follow()
	do(g.rules, g.incarnation.clock())
	return true
}
