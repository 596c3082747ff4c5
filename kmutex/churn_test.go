package kmutex_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/kmutex/invariants"
)

// This file is the machine's world below its driver, package internal/pool: nodes come,
// leave and are lost; agreed views, reports and installs are there, and everything else
// is any order. It shows what a run of the driver cannot. There is no time, no link, no
// retry and no order of messages, so that a world is few bytes, can be copied, and all
// worlds of a few nodes are visited (TestExploreLoss); and machines meet messages, views
// and installs in orders that no link brings them in, as a lost node does that goes on.
// What the driver decides, when a letter goes again, who takes over a request, when a new
// epoch is asked for, is tested in internal/pool and by the fuzz of the lab.

// choices is where a schedule's decisions come from: a seeded source, or the
// bytes of a fuzzer.
type choices interface {
	// IntN returns a number in [0, n).
	IntN(n int) int
}

// churnScope bounds a schedule.
type churnScope struct {
	early                            bool
	nodes, k, requests, cancels      int
	losses, leaves, joins, ks, moves int // agreed commands; moves begin an epoch for no reason
	classes                          int // of tokens, which share k; 0: all are alike
	bars                             int // how often a node loses the use of a class
	holds                            int // the more, the longer critical sections are
	probes                           int // how often nodes look after their batches
}

// view is what all agree on.
type view struct {
	epoch   uint64
	k       int
	classes []kmutex.Class
	home    kmutex.Node
	began   kmutex.Node // the last node when the epoch began
	owed    bool
	members []kmutex.Node
}

func (v *view) change(spread bool) kmutex.EpochChange {
	return kmutex.EpochChange{Epoch: v.epoch, K: v.k, Classes: v.classes, Home: v.home, Owed: v.owed, Spread: spread}
}

// setK shares k out to the classes. A class keeps every number that it once had.
func (v *view) setK(k, classes int, c choices) {
	v.k = k
	if classes == 0 {
		return
	}
	v.classes = slices.Clone(v.classes)
	var used kmutex.TokenSet
	for i := range v.classes {
		used.AddAll(v.classes[i].Tokens)
		v.classes[i].K = 0
	}
	for len(v.classes) < classes {
		v.classes = append(v.classes, kmutex.Class{})
	}
	for range k {
		v.classes[c.IntN(classes)].K++
	}
	for i := range v.classes {
		tokens := v.classes[i].Tokens.Clone()
		for q := kmutex.Token(0); tokens.Len() < v.classes[i].K; q++ {
			if !used.Has(q) {
				tokens.Add(q)
				used.Add(q)
			}
		}
		v.classes[i].Tokens = tokens
	}
}

// slot is a request as its client sees it: requests that were adopted one after
// the other are the same slot. over: the client has ended it.
type slot struct {
	stamp int64
	over  bool
}

// standing of a node.
type standing int

const (
	member standing = iota
	lost            // suspended: it may still run requests, and does not know
	gone            // its lease has run out, or it had left
)

func (s standing) String() string { return [...]string{"member", "lost", "gone"}[s] }

// peer is a node and its driver.
type peer struct {
	machine  *kmutex.Machine
	shared   bool // the machine is another world's too
	state    kmutex.State
	key      string // names the state; empty: not asked for yet
	standing standing
	killed   bool // lost, and takes no more steps
	view     int  // the newest view that it knows
	acquired int
	asking   bool
	retrying bool
	slots    map[kmutex.Request]*slot
	ended    map[kmutex.Request]bool // its release or cancel was given to the machine
	// planning is the epoch that the node, as home, waits for reports of, unplanned
	// the epochs since the last install for which it gave that up.
	planning  *planning
	unplanned []uint64
	// heirlooms are what lost nodes have left to this one.
	heirlooms []heirloom
}

// heirloom is a request that a lost node had.
type heirloom struct {
	slot    *slot
	serial  uint64
	token   kmutex.Token
	running bool
}

type planning struct {
	epoch   uint64
	awaited map[kmutex.Node]bool
	reports []kmutex.Report
	adopted map[kmutex.Node]map[kmutex.Request]*slot
	next    int // of the adopted requests
}

// letter is a report on its way to home, or an install on its way back.
type letter struct {
	to        kmutex.Node
	epoch     uint64
	report    *kmutex.Report
	heirlooms []heirloom
	install   *kmutex.Install
	adopted   map[kmutex.Request]*slot
}

type churn struct {
	churnScope
	choices choices
	peers   []*peer
	views   []view
	flight  []kmutex.Envelope
	letters []letter
	clock   int64
	// planned has the k of every class, and of all together, in every epoch that has been planned.
	planned map[uint64][]int
	serials map[uint64]map[uint64]bool         // by epoch, of all grants
	last    map[uint64]map[kmutex.Token]uint64 // by epoch and token, of the last grant
	log     []label
	grants  int
}

func newChurn(s churnScope, c choices) *churn {
	w := &churn{
		churnScope: s, choices: c, planned: make(map[uint64][]int),
		serials: make(map[uint64]map[uint64]bool), last: make(map[uint64]map[kmutex.Token]uint64),
	}
	v := view{epoch: 1, home: 1, began: kmutex.Node(s.nodes)}
	v.setK(s.k, s.classes, c)
	w.planned[1] = v.ks()
	for i := range s.nodes {
		v.members = append(v.members, kmutex.Node(i+1))
	}
	w.views = []view{v}
	for range s.nodes {
		w.add()
	}
	return w
}

// add makes a node that has seen no view.
func (w *churn) add() {
	self := kmutex.Node(len(w.peers) + 1)
	var b kmutex.Binding = new(coordinator.Late)
	if w.early {
		b = new(coordinator.Early)
	}
	p := &peer{
		machine: kmutex.New(self, b), view: -1,
		slots: make(map[kmutex.Request]*slot), ended: make(map[kmutex.Request]bool),
	}
	p.state = p.machine.State()
	w.peers = append(w.peers, p)
}

func (w *churn) newest() *view                     { return &w.views[len(w.views)-1] }
func (w *churn) peer(n kmutex.Node) *peer          { return w.peers[n-1] }
func (w *churn) pick(ns []kmutex.Node) kmutex.Node { return ns[w.choices.IntN(len(ns))] }

// agree adds a view; change edits it.
func (w *churn) agree(begins bool, change func(*view)) {
	v := *w.newest()
	v.members = slices.Clone(v.members)
	change(&v)
	if begins {
		v.epoch++
		v.began = kmutex.Node(len(w.peers))
		v.owed = slices.ContainsFunc(w.peers, func(p *peer) bool { return p.standing == lost })
		if !slices.Contains(v.members, v.home) || w.choices.IntN(3) == 0 {
			v.home = w.pick(v.members)
		}
	}
	w.views = append(w.views, v)
}

// step lets a node's machine take in an event.
func (w *churn) step(n kmutex.Node, e kmutex.Event) (*kmutex.Effects, error) {
	p := w.peer(n)
	if p.shared {
		p.machine, p.shared = p.machine.Clone(), false
	}
	fx, err := p.machine.Step(&e)
	if err != nil {
		return nil, fmt.Errorf("node %d: %v: %w", n, e, err)
	}
	p.state, p.key = p.machine.State(), ""
	p.asking = p.asking && e.Kind != kmutex.EventAskDue || fx.AskTimer
	p.retrying = p.retrying && e.Kind != kmutex.EventRetryDue || fx.RetryTimer
	w.flight = append(w.flight, fx.Messages...)
	for _, g := range fx.Grants {
		if err := w.granted(p.state.Epoch, g); err != nil {
			return nil, fmt.Errorf("node %d: %v: %w", n, e, err)
		}
	}
	for i, most := range w.limit(p.state.Epoch) {
		grants := slices.DeleteFunc(slices.Clone(fx.Grants), func(g kmutex.Grant) bool { return !w.isOf(i, g.Token) })
		if len(grants) > 0 && w.inFlight(i) > most {
			return nil, fmt.Errorf("safety: node %d lets in %v: %d slots of class %d in flight, limit %d", n, grants, w.inFlight(i), i, most)
		}
	}
	for _, g := range fx.Grants {
		if p.state.Barred.Has(g.Token) {
			return nil, fmt.Errorf("node %d lets in %v, whose token it cannot use", n, g)
		}
	}
	if here, most := w.here(), w.most(); here > most {
		return nil, fmt.Errorf("parts: node %d, %v: nodes count %d tokens, there are %d at most", n, e, here, most)
	}
	return fx, nil
}

// ks returns the k of each class; of the pool, if all tokens are alike.
func (v *view) ks() []int {
	if v.classes == nil {
		return []int{v.k}
	}
	var ks []int
	for _, c := range v.classes {
		ks = append(ks, c.K)
	}
	return ks
}

// isOf reports whether a token is of class i. No class ever loses a number.
func (w *churn) isOf(i int, q kmutex.Token) bool {
	v := w.newest()
	return v.classes == nil || v.classes[i].Tokens.Has(q)
}

// most returns the largest number of tokens that can have existed at once.
func (w *churn) most() int {
	sum := 0
	for _, k := range w.limit(0) {
		sum += k
	}
	return sum
}

// here sums up TokensHere of the nodes, lost nodes included until their leases have run out. Each
// token may carry a part of a rate.
func (w *churn) here() int {
	n := 0
	for _, p := range w.peers {
		if p.standing != gone {
			n += p.machine.TokensHere()
		}
	}
	return n
}

// limit is how many slots may be in flight when a node in this epoch lets one in:
// k, also while more than that were let in before k was lowered. A lost node that
// does not know of a larger k is counted within that one.
func (w *churn) limit(epoch uint64) []int {
	most := make([]int, max(1, w.classes))
	for e, ks := range w.planned {
		for i, k := range ks {
			if e >= epoch {
				most[i] = max(most[i], k)
			}
		}
	}
	return most
}

// granted checks the serial of a grant against all before.
func (w *churn) granted(epoch uint64, g kmutex.Grant) error {
	w.grants++
	if w.serials[epoch] == nil {
		w.serials[epoch], w.last[epoch] = make(map[uint64]bool), make(map[kmutex.Token]uint64)
	}
	if w.serials[epoch][g.Serial] {
		return fmt.Errorf("serial: %d of token %d in epoch %d was given out before", g.Serial, g.Token, epoch)
	}
	if g.Serial <= w.last[epoch][g.Token] {
		return fmt.Errorf("serial: %d of token %d in epoch %d is not larger than those before", g.Serial, g.Token, epoch)
	}
	w.serials[epoch][g.Serial], w.last[epoch][g.Token] = true, g.Serial
	return nil
}

// lose suspends a member. What it had is left to an heir, as far as it was
// replicated.
func (w *churn) lose(n kmutex.Node) {
	p := w.peer(n)
	p.standing, p.killed = lost, w.choices.IntN(2) == 0
	w.depart(n)
}

// depart takes a node out of the members.
func (w *churn) depart(n kmutex.Node) {
	w.agree(true, func(v *view) {
		v.members = slices.DeleteFunc(v.members, func(m kmutex.Node) bool { return m == n })
	})
	p := w.peer(n)
	left := p.heirlooms
	leave := func(t kmutex.Request, h heirloom) {
		if h.slot = p.slots[t]; !h.slot.over && w.choices.IntN(2) == 0 {
			left = append(left, h)
		}
	}
	for _, g := range p.state.Running {
		leave(g.Request, heirloom{running: true, serial: g.Serial, token: g.Token})
	}
	for _, t := range waitingRequests(&p.state) {
		leave(t, heirloom{})
	}
	heir := w.peer(w.pick(w.newest().members))
	heir.heirlooms = append(heir.heirlooms, left...)
}

// expire ends every lease that may still run.
func (w *churn) expire(n kmutex.Node) {
	w.peer(n).standing = gone
	w.agree(true, func(*view) {})
}

// learn lets a member know view i.
func (w *churn) learn(n kmutex.Node, i int) error {
	p, v := w.peer(n), w.views[i]
	p.view = i
	if v.epoch <= p.state.Epoch {
		return nil
	}
	if v.epoch == 1 || n > v.began {
		_, err := w.step(n, kmutex.Event{Kind: kmutex.EventInstall, Install: kmutex.Genesis(v.change(false), n)})
		return err
	}
	fx, err := w.step(n, kmutex.Event{Kind: kmutex.EventFreeze, Epoch: v.epoch, K: v.k})
	if err != nil {
		return err
	}
	if p.planning != nil {
		p.unplanned = append(p.unplanned, p.planning.epoch)
		p.planning = nil
	}
	if v.home == n {
		p.planning = &planning{epoch: v.epoch, awaited: make(map[kmutex.Node]bool), adopted: make(map[kmutex.Node]map[kmutex.Request]*slot)}
		for _, m := range v.members {
			if m <= v.began {
				p.planning.awaited[m] = true
			}
		}
	}
	r := *fx.Report
	r.Unplanned = slices.Clone(p.unplanned)
	var batches []kmutex.ReportedBatch
	for _, batch := range r.Waiting {
		for _, t := range batch.Requests {
			batches = append(batches, kmutex.ReportedBatch{Stamp: p.slots[t].stamp, Requests: []kmutex.Request{t}})
		}
	}
	r.Waiting = batches
	w.letters = append(w.letters, letter{to: v.home, epoch: v.epoch, report: &r, heirlooms: slices.Clone(p.heirlooms)})
	return nil
}

// collect takes in a report, at home; with the last one home plans the epoch.
func (w *churn) collect(p *peer, l letter) error {
	f := p.planning
	if f == nil || f.epoch != l.epoch || !f.awaited[l.report.Node] {
		return nil // superseded
	}
	delete(f.awaited, l.report.Node)
	slots := make(map[kmutex.Request]*slot)
	for _, h := range l.heirlooms {
		t := kmutex.AdoptedRequest(f.epoch, f.next)
		f.next++
		slots[t] = h.slot
		if h.running {
			l.report.Running = append(l.report.Running, kmutex.Grant{Request: t, Token: h.token, Serial: h.serial})
		} else {
			l.report.Waiting = append(l.report.Waiting, kmutex.ReportedBatch{Stamp: h.slot.stamp, Requests: []kmutex.Request{t}})
			slots[t] = &slot{stamp: h.slot.stamp} // the lost node may still let it in, as another
		}
	}
	f.reports = append(f.reports, *l.report)
	f.adopted[l.report.Node] = slots
	if len(f.awaited) > 0 {
		return nil
	}
	p.planning = nil
	v := w.views[slices.IndexFunc(w.views, func(v view) bool { return v.epoch == f.epoch })]
	installs, err := kmutex.PlanEpoch(v.change(p.machine.Spreads()), f.reports)
	if err != nil {
		return err
	}
	w.planned[f.epoch] = v.ks()
	for i, in := range installs {
		n := f.reports[i].Node
		w.letters = append(w.letters, letter{to: n, epoch: f.epoch, install: in, adopted: f.adopted[n]})
	}
	return nil
}

// begin takes in an install. The machine must refuse a late install.
func (w *churn) begin(n kmutex.Node, l letter) error {
	p := w.peer(n)
	e := kmutex.Event{Kind: kmutex.EventInstall, Install: l.install}
	if !p.state.Frozen || p.state.Epoch != l.epoch {
		_, err := p.machine.Step(&e)
		if after := p.machine.State(); !errors.Is(err, kmutex.ErrInstall) || fmt.Sprint(after) != fmt.Sprint(p.state) {
			return fmt.Errorf("node %d in epoch %d takes the install of epoch %d", n, p.state.Epoch, l.epoch)
		}
		return nil
	}
	for t, s := range l.adopted {
		p.slots[t] = s
	}
	p.heirlooms, p.unplanned = nil, nil
	_, err := w.step(n, e)
	return err
}

// inFlight counts the slots of class i whose requests an upstream may be working on: at
// members, and at lost nodes until their leases have run out. Slots that were
// handed on count once.
func (w *churn) inFlight(i int) int {
	seen := make(map[*slot]bool)
	for _, p := range w.peers {
		if p.standing == gone {
			continue
		}
		for _, g := range p.state.Running {
			if s := p.slots[g.Request]; !s.over && w.isOf(i, g.Token) {
				seen[s] = true
			}
		}
	}
	return len(seen)
}

// whole reports whether every member is in the newest epoch.
func (w *churn) whole() bool {
	v := w.newest()
	return !slices.ContainsFunc(v.members, func(n kmutex.Node) bool {
		s := &w.peer(n).state
		return s.Epoch != v.epoch || s.Frozen
	})
}

// check returns the violated invariants.
func (w *churn) check() error {
	if !w.whole() {
		return nil
	}
	v := w.newest()
	world := invariants.World{K: v.k, Classes: v.classes, Early: w.early}
	for _, n := range v.members {
		p := w.peer(n)
		world.Nodes = append(world.Nodes, p.state)
		world.AskPending = world.AskPending || p.asking
		if p.state.Tokens != nil && n <= v.began {
			world.Tokens, world.Withheld = p.state.Tokens, p.state.Withheld
		}
		if n <= v.began {
			world.Withheld = p.state.Withheld
		}
	}
	for _, e := range w.flight {
		if e.Message.Epoch == v.epoch {
			world.Flight = append(world.Flight, e)
		}
	}
	return world.Check()
}

// atRest checks a pool in which no step is left.
func (w *churn) atRest() error {
	if !w.whole() {
		return errors.New("at rest, and not all are in the newest epoch")
	}
	v, free := w.newest(), 0
	for _, n := range v.members {
		p := w.peer(n)
		if ts := waitingRequests(&p.state); len(ts) > 0 || len(p.state.Running) > 0 {
			return fmt.Errorf("nothing can happen any more, and requests %v of node %d wait", ts, n)
		}
		free += p.machine.FreeHere()
	}
	if free != v.k {
		return fmt.Errorf("%d tokens are free at the end, k=%d", free, v.k)
	}
	return nil
}
