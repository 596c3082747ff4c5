package token

import (
	"cmp"
	"slices"

	"github.com/kgate/kgate/lab/sim"
)

// poll is the question to all living nodes whether one has the token.
type poll struct {
	id      uint64
	awaited []int
	newest  stamp
}

// Messages of the recovery.
type (
	// lost reports that the token of this stamp went down with its holder.
	lost struct{ stamp stamp }
	// inquiry opens a poll, closing ends a poll that another node continues.
	inquiry struct{}
	closing struct{}
	// answer to an inquiry. Busy: the answering node has a poll of its own.
	answer struct {
		stamp       stamp
		holds, busy bool
	}
	// found says, after an answer, that the token has arrived.
	found struct{ stamp stamp }
	// fresh says that its sender has made a token (the paper's Ltoken).
	fresh struct{ stamp stamp }
	// who asks for the holder after a restart.
	who struct{}
	// holder answers it.
	holder struct {
		node  int
		stamp stamp
	}
)

// Timers of a node.
const (
	timerSettle  = iota // nobody has found the token since the poll [poll]
	timerPassOn         // all who wait have asked the maker of the token
	timerRecover        // what was sent before the crash has arrived
)

// Down implements [protocol.Detecting].
func (y *system) Down(i, crashed int) { y.nodes[i].crashed(crashed) }

// crashed is lines 34-42.
func (n *node) crashed(j int) {
	n.down[j], n.told[j] = true, n.sys.Now()
	n.queue = slices.DeleteFunc(slices.Clone(n.queue), func(w waiter) bool { return w.node == j })
	unanswered := n.reported == j || slices.Contains(n.pollers, j)
	n.pollers = without(n.pollers, j)
	n.heard(j)
	if n.poll != nil {
		n.answered(j)
	}
	// A question that went down with j is asked again, also if the holder is up
	// again meanwhile: it may have come back without the token.
	if !n.recovering && (unanswered || n.lost() && n.status == try) {
		n.report()
	}
}

// report tells the living node with the lowest number that the token is lost.
func (n *node) report() {
	n.reported = slices.IndexFunc(n.down, func(down bool) bool { return !down })
	if n.reported == n.self {
		n.startPoll()
		return
	}
	n.sys.Send(n.self, n.reported, "lost", lost{n.stamp})
}

// recovery takes in a message of the recovery.
func (n *node) recovery(from int, m any) {
	switch m := m.(type) {
	case lost:
		n.reportedLost(from, m)
	case inquiry:
		if !n.down[from] { // else it was sent before the crash, and nobody closes that poll
			n.inquired(from)
		}
	case answer:
		n.answer(from, m)
	case found:
		if n.poll != nil {
			n.tokenIsAt(from, m.stamp)
		}
	case closing:
		n.pollers = without(n.pollers, from)
	case fresh:
		n.fresh(from, m.stamp)
	case who:
		n.returned(from)
	case holder:
		if m.stamp.after(n.stamp) || m.stamp == n.stamp && n.recovering {
			n.holder, n.stamp = m.node, m.stamp
		}
		n.heard(from)
	}
}

// returned answers a node that has restarted. What arrives within the bound after
// the news of a crash was sent before it, by a life that is over: a new life waits
// for as long before it asks. Whoever took the node for alive would wait for its
// answers for ever.
func (n *node) returned(from int) {
	if n.down[from] && n.sys.Now()-n.told[from] <= n.bound {
		return
	}
	n.down[from] = false
	n.sys.Send(n.self, from, "holder", holder{n.holder, n.stamp})
}

func (n *node) reportedLost(from int, m lost) {
	switch {
	case n.holds():
		n.sys.Send(n.self, from, "ok", pointer{holder: n.self, stamp: n.stamp, again: true})
	case n.stamp.after(m.stamp) && !n.lost() && !n.recovering:
		n.sys.Send(n.self, from, "ok", pointer{holder: n.holder, stamp: n.stamp, again: true})
	default:
		n.startPoll()
	}
}

// startPoll asks all living nodes for the token, unless it is being asked for.
func (n *node) startPoll() {
	if n.poll != nil || len(n.pollers) > 0 || n.holds() {
		return
	}
	n.polls++
	n.poll = &poll{id: n.polls, newest: n.stamp}
	for i, down := range n.down {
		if i != n.self && !down {
			n.poll.awaited = append(n.poll.awaited, i)
		}
	}
	n.everybody("inquiry", inquiry{})
	n.answered(nobody)
}

// inquired answers. Of two that ask at once, the lower number goes on.
func (n *node) inquired(from int) {
	if n.poll != nil && from > n.self {
		n.sys.Send(n.self, from, "answer", answer{busy: true})
		return
	}
	n.closePoll()
	if !n.holds() {
		n.pollers = append(without(n.pollers, from), from)
	}
	n.sys.Send(n.self, from, "answer", answer{stamp: n.stamp, holds: n.holds()})
}

func (n *node) closePoll() {
	if n.poll != nil {
		n.poll = nil
		n.everybody("closing", closing{})
	}
}

func (n *node) answer(from int, a answer) {
	switch {
	case n.poll == nil:
	case a.busy:
		n.closePoll()
	case a.holds:
		n.tokenIsAt(from, a.stamp)
	default:
		if a.stamp.after(n.poll.newest) {
			n.poll.newest = a.stamp
		}
		n.answered(from)
	}
}

// answered waits, after the last answer, until the token would have arrived if it
// was on its way, and the news of that as well.
func (n *node) answered(from int) {
	before := len(n.poll.awaited)
	n.poll.awaited = without(n.poll.awaited, from)
	if len(n.poll.awaited) == 0 && (before > 0 || from == nobody) {
		n.sys.After(n.self, 2*n.bound, sim.Timer{Kind: timerSettle, Arg: n.poll.id})
	}
}

// tokenIsAt ends the poll: the token is not lost.
func (n *node) tokenIsAt(at int, s stamp) {
	n.poll = nil
	p := pointer{holder: at, stamp: s, again: true}
	n.everybody("ok", p)
	n.pointer(p)
}

// Due implements [sim.Handler].
func (y *system) Due(i int, t sim.Timer) {
	n := y.nodes[i]
	switch t.Kind {
	case timerSettle:
		if n.poll != nil && n.poll.id == t.Arg {
			n.settle()
		}
	case timerPassOn:
		n.regenerated()
	case timerRecover:
		n.inquireHolder()
	}
}

// settle makes a new token: lines 36-39, by one process only.
func (n *node) settle() {
	n.stamp = stamp{epoch: max(n.poll.newest.epoch, n.stamp.epoch) + 1}
	n.poll, n.reported, n.recovering = nil, nobody, false
	n.status, n.holder, n.queue = regenerating, n.self, nil
	if n.own != 0 {
		n.enqueue(waiter{n.self, n.own})
	}
	n.everybody("fresh", fresh{n.stamp})
	n.sys.After(n.self, 2*n.bound, sim.Timer{Kind: timerPassOn})
}

// fresh is lines 43-50: a waiting node asks the maker of the token.
func (n *node) fresh(from int, s stamp) {
	n.pollers = without(n.pollers, from)
	if !s.after(n.stamp) {
		return
	}
	if n.status == have || n.status == regenerating {
		n.status = norm // an older token, which is destroyed
		if n.own != 0 {
			n.status = try
		}
	}
	n.holder, n.stamp, n.queue = from, s, nil
	n.poll, n.reported, n.recovering, n.unheard = nil, nobody, false, nil
	if n.status == try {
		n.ask()
	}
}

// regenerated is lines 51-58: the time-out, after which the token is used.
func (n *node) regenerated() {
	if n.status != regenerating {
		return
	}
	slices.SortFunc(n.queue, func(a, b waiter) int { return cmp.Compare(a.request, b.request) })
	n.status = have
	if len(n.queue) > 0 && n.queue[0].node == n.self {
		n.queue = n.queue[1:]
		n.enter()
		return
	}
	n.hand()
}

// Restart implements [protocol.Restarting]. The stamp is on stable storage.
func (y *system) Restart(i int) {
	old := y.nodes[i].stamp
	n := y.newNode(i)
	n.stamp, n.holder, n.recovering = old, i, true
	y.nodes[i] = n
	y.host.After(i, y.bound, sim.Timer{Kind: timerRecover})
}

// inquireHolder asks all living nodes for the holder of the token.
func (n *node) inquireHolder() {
	if !n.recovering {
		return
	}
	for i, down := range n.down {
		if i != n.self && !down {
			n.unheard = append(n.unheard, i)
		}
	}
	n.everybody("who", who{})
	n.unheard = append(n.unheard, nobody)
	n.heard(nobody)
}

// heard ends the recovery with the last answer.
func (n *node) heard(from int) {
	before := len(n.unheard)
	n.unheard = without(n.unheard, from)
	if !n.recovering || before == 0 || len(n.unheard) > 0 {
		return
	}
	n.recovering = false
	early := n.queue
	n.queue = nil
	for _, w := range early {
		n.request(request{w, n.stamp}, 0)
	}
	switch {
	case n.status == try:
		n.ask()
	case n.lost(): // it had the token when it crashed
		n.report()
	}
}

func without(list []int, i int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(have int) bool { return have == i })
}
