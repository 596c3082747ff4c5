package membership

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// leaderWatch knows whether this gateway has a leader that is of use, and asks others about
// theirs.
type leaderWatch struct {
	*raftNode
	peers  *peerClient
	prober *prober

	// renewed is the newest renewal of this gateway's lease that another one granted; asked
	// is the first that was sent to the present leader.
	renewed, asked atomic.Pointer[renewal]
}

// renewal is one that was sent to a leader.
type renewal struct {
	to   string // the leader's raft server
	term uint64 // in which it was sent
	sent time.Time
}

// of reports whether the renewal was sent to that leader in that term.
func (r *renewal) of(leader string, term uint64) bool {
	return r != nil && r.to == leader && r.term == term
}

// termAnswer is what a voter says about the term that it is in.
type termAnswer struct {
	Term uint64 `json:"term"`
	// Leaderless: it has no leader. Last is the index of the newest entry of its log.
	Leaderless bool   `json:"leaderless,omitempty"`
	Last       uint64 `json:"last"`
	// Waits: its raft has asked for pre-votes in vain, and takes no call for an election
	// before it asks again.
	Waits bool `json:"waits,omitempty"`
}

// silentFrom returns when this gateway's leader counts as silent if it sends no more
// heartbeats, or does not renew its lease any more: it is stopped, slow, or cut off from most
// voters. A leader that has just been elected, be it again, has two leases for its first
// renewal: leases are over then.
//
// Raft's followers miss the heartbeats, too, but each looks at a time of its own, up to
// another two timeouts later, and leases do not last that long.
func (w *leaderWatch) silentFrom(leads string) time.Time {
	from := w.raft.LastContact().Add(w.raftTimeout())
	term, lease := w.raft.CurrentTerm(), w.lease()
	if last := w.renewed.Load(); last.of(leads, term) {
		from = earlier(from, last.sent.Add(lease*3/5))
	} else if asked := w.asked.Load(); asked.of(leads, term) {
		from = earlier(from, asked.sent.Add(2*lease))
	}
	return from
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// silentIn returns how long this gateway's leader may still be silent. A leader hears from
// none.
func (w *leaderWatch) silentIn() time.Duration {
	if w.leads() || w.leaving.Load() {
		return lookAgain
	}
	return max(time.Until(w.silentFrom(w.leaderID())), 0) + time.Millisecond
}

// leaderless reports that this gateway has no leader: it knows of none, or has
// strong evidence that it is gone.
func (w *leaderWatch) leaderless() bool {
	if w.leads() || w.leaving.Load() {
		return false
	}
	id := w.leaderID()
	return id == "" || w.prober.serverUnreachable(id) || time.Now().After(w.silentFrom(id))
}

// termOf asks a voter which term it is in.
func (w *leaderWatch) termOf(ctx context.Context, server string) (termAnswer, error) {
	if server == w.storage.meta.Server {
		return w.term(), nil
	}
	to, ok := w.addresses.to(server)
	if !ok {
		return termAnswer{}, fmt.Errorf("membership: no address of %s", server)
	}
	var t termAnswer
	err := w.peers.call(ctx, http.MethodGet, to, pathTerm+"?server="+url.QueryEscape(server), nil, &t)
	return t, err
}

func (w *leaderWatch) term() termAnswer {
	voted, in := w.storage.voted() // before the term: so a vote given in it is not missed
	a := termAnswer{Term: w.raft.CurrentTerm(), Leaderless: w.leaderless(), Last: w.raft.LastIndex()}
	a.Waits = w.raft.State() == raft.Candidate && (in != a.Term || voted != w.storage.meta.Server)
	return a
}

// whileLed calls cancel when the leader is no longer the given one, or is unreachable.
func (w *leaderWatch) whileLed(ctx context.Context, leads string, cancel func()) {
	for {
		changed := w.Changed()
		if w.leaderID() != leads || w.prober.serverUnreachable(leads) {
			cancel()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
