package kmutex_test

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"testing"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/kmutex/invariants"
)

// This file visits every state that a small pool can reach: every interleaving
// of local events and of deliveries in any order.

// scope bounds a small world.
type scope struct {
	nodes, k, requests, cancels int
	early                       bool
	// probes is how often a node looks after its batches.
	probes int
	// barring nodes, from the last one on, may bar each token, which is a class of its own, and
	// use it again, once each; 0: all tokens are alike.
	barring int
}

func (s scope) String() string {
	binding := "late"
	if s.early {
		binding = "early"
	}
	return fmt.Sprintf("%s/n=%d,k=%d,requests=%d,cancels=%d,probes=%d,barring=%d", binding, s.nodes, s.k, s.requests, s.cancels, s.probes, s.barring)
}

// change returns the first epoch.
func (s scope) change() kmutex.EpochChange {
	c := kmutex.EpochChange{Epoch: 1, K: s.k, Home: 1}
	for q := range s.k {
		if s.barring > 0 {
			var one kmutex.TokenSet
			one.Add(kmutex.Token(q))
			c.Classes = append(c.Classes, kmutex.Class{K: 1, Tokens: one})
		}
	}
	return c
}

func (s scope) binding() kmutex.Binding {
	if s.early {
		return new(coordinator.Early)
	}
	return new(coordinator.Late)
}

// world is a state of the search. Its machines are never changed once shared:
// a step clones the machine that it changes.
type world struct {
	scope    scope
	machines []*kmutex.Machine
	states   []*kmutex.State // of the machines
	flight   []kmutex.Envelope
	acquired []int
	asking   []bool
	retrying []bool
	bars     []int // that each node has left
	cancels  int
	probes   int // looks after batches that are still to be made
}

func newWorld(s scope) *world {
	w := &world{
		scope: s, machines: make([]*kmutex.Machine, s.nodes), states: make([]*kmutex.State, s.nodes),
		acquired: make([]int, s.nodes), asking: make([]bool, s.nodes), cancels: s.cancels, probes: s.probes,
		retrying: make([]bool, s.nodes), bars: make([]int, s.nodes),
	}
	for i := range s.barring {
		w.bars[s.nodes-1-i] = 2
	}
	for i := range w.machines {
		self := kmutex.Node(i + 1)
		w.machines[i] = kmutex.New(self, s.binding())
		if err := w.apply(i, kmutex.Event{Kind: kmutex.EventInstall, Install: kmutex.Genesis(s.change(), self)}); err != nil {
			panic(err)
		}
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.machines = slices.Clone(w.machines)
	c.states = slices.Clone(w.states)
	c.flight = slices.Clone(w.flight)
	c.acquired = slices.Clone(w.acquired)
	c.asking = slices.Clone(w.asking)
	c.retrying, c.bars = slices.Clone(w.retrying), slices.Clone(w.bars)
	return &c
}

// apply steps a clone of machine i.
func (w *world) apply(i int, e kmutex.Event) error {
	w.machines[i] = w.machines[i].Clone()
	fx, err := w.machines[i].Step(&e)
	if err != nil {
		return err
	}
	w.flight = append(w.flight, fx.Messages...)
	w.asking[i] = w.asking[i] || fx.AskTimer
	w.retrying[i] = w.retrying[i] || fx.RetryTimer
	state := w.machines[i].State()
	w.states[i] = &state
	return nil
}

// step is one way on from a world.
type step struct {
	node    int
	event   kmutex.Event
	deliver int // index into flight, or -1
}

func (s step) String() string { return fmt.Sprintf("node %d: %v", s.node+1, s.event) }

// steps returns every way on.
func (w *world) steps() []step {
	out := make([]step, 0, 16)
	for i := range w.machines {
		local := func(kind kmutex.EventKind, t kmutex.Request) {
			out = append(out, step{node: i, deliver: -1, event: kmutex.Event{Kind: kind, Request: t}})
		}
		if w.acquired[i] < w.scope.requests {
			local(kmutex.EventAcquire, kmutex.Request(w.acquired[i]+1))
		}
		if w.asking[i] {
			local(kmutex.EventAskDue, 0)
		}
		if w.retrying[i] && (w.probes > 0 || len(w.states[i].Offered) > 0) {
			local(kmutex.EventRetryDue, 0)
		}
		for _, g := range w.states[i].Running {
			local(kmutex.EventRelease, g.Request)
			if w.states[i].Barred.Has(g.Token) {
				local(kmutex.EventReturn, g.Request)
			}
		}
		for q := range w.scope.k {
			if w.bars[i] == 0 {
				break
			}
			barred := w.states[i].Barred.Clone()
			if w.bars[i] == 1 { // what it has barred is usable again
				barred = nil
			} else {
				barred.Add(kmutex.Token(q))
			}
			out = append(out, step{node: i, deliver: -1, event: kmutex.Event{Kind: kmutex.EventBar, Barred: barred}})
		}
		if w.cancels > 0 {
			for _, t := range waitingRequests(w.states[i]) {
				local(kmutex.EventCancel, t)
			}
		}
	}
	for j, e := range w.flight {
		out = append(out, step{
			node: int(e.To) - 1, deliver: j,
			event: kmutex.Event{Kind: kmutex.EventReceive, From: e.From, Message: &w.flight[j].Message},
		})
	}
	return out
}

func (w *world) take(s step) error {
	switch s.event.Kind {
	case kmutex.EventAcquire:
		w.acquired[s.node]++
	case kmutex.EventAskDue:
		w.asking[s.node] = false
	case kmutex.EventRetryDue:
		w.retrying[s.node] = false
		if len(w.states[s.node].Offered) == 0 {
			w.probes--
		}
	case kmutex.EventBar:
		w.bars[s.node]--
	case kmutex.EventCancel:
		w.cancels--
	default:
	}
	if s.deliver >= 0 {
		w.flight = slices.Delete(w.flight, s.deliver, s.deliver+1)
	}
	if err := w.apply(s.node, s.event); err != nil {
		return err
	}
	if s.event.Kind == kmutex.EventRetryDue && w.retrying[s.node] { // batches tell of themselves at the second
		w.retrying[s.node] = false
		if err := w.apply(s.node, s.event); err != nil {
			return err
		}
	}
	return w.tidy(s.node)
}

// tidy takes at once the steps that change nothing whenever they are taken: the
// ask interval's end at a node that has asked for all its requests, and news of the baton that
// home already knows.
func (w *world) tidy(i int) error {
	w.flight = slices.DeleteFunc(w.flight, func(e kmutex.Envelope) bool {
		return e.Message.Kind == kmutex.KindLocate && e.Message.Number < w.states[e.To-1].Where.Number
	})
	if w.asking[i] && w.acquired[i] == w.scope.requests && len(w.states[i].Pending) == 0 {
		w.asking[i] = false
		return w.apply(i, kmutex.Event{Kind: kmutex.EventAskDue})
	}
	return nil
}

func waitingRequests(s *kmutex.State) []kmutex.Request {
	var ts []kmutex.Request
	for _, batch := range s.Batches {
		ts = append(ts, batch.Requests...)
	}
	ts = append(ts, s.Pending...)
	for _, seat := range s.Seats {
		if seat.Request != 0 && seat.Token == kmutex.NoToken {
			ts = append(ts, seat.Request)
		}
	}
	return ts
}

// check returns the violated invariants. ways are the steps that lead on; a world without any is
// an end, in which no request may wait.
func (w *world) check(ways []step) error {
	view := invariants.World{
		K: w.scope.k, Classes: w.scope.change().Classes, Tokens: kmutex.NewTokenSet(w.scope.k), Flight: w.flight, Early: w.scope.early, AskPending: slices.Contains(w.asking, true),
	}
	for _, s := range w.states {
		view.Nodes = append(view.Nodes, *s)
	}
	if err := view.Check(); err != nil {
		return err
	}
	if len(ways) > 0 {
		return nil
	}
	for _, s := range w.states {
		if ts := waitingRequests(s); len(ts) > 0 {
			return fmt.Errorf("nothing can happen any more and requests %v of node %d wait", ts, s.Self)
		}
	}
	return nil
}

// explorer does the search, depth first.
type explorer struct {
	seeds [2]maphash.Seed
	seen  map[[2]uint64]struct{}
	buf   []byte
	keys  [][]byte
	names names
}

// names renames what only has an identity: nodes by a permutation, baton numbers and seat serials
// by their rank among the numbers in use. Machines only compare numbers, and a new number is larger
// than all before it, so worlds that are equal up to such a renaming go on in the same way. Under
// late binding tokens are interchangeable, too, so their names are left out, with the counter, which
// only chooses among free tokens. Request numbers are left out as well: only the order in the
// batches counts.
type names struct {
	early  bool
	alike  bool // all tokens are
	places bool // batches are told apart: some may be skipped
	node   []kmutex.Node
	number table
	serial [maxNodes + 1]table // by node, old name
}

// explore visits every world of s and returns how many there are.
func explore(s scope) (int, error) {
	x := &explorer{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		seen:  make(map[[2]uint64]struct{}),
	}
	type frame struct {
		w    *world
		ways []step
		via  step
	}
	var path []frame
	fail := func(last step, err error) error {
		trace := ""
		for _, f := range path[1:] {
			trace += f.via.String() + "\n"
		}
		return fmt.Errorf("%v: %w\nafter:\n%s%v", s, err, trace, last)
	}
	enter := func(w *world, via step) error {
		if !x.fresh(w) {
			return nil
		}
		ways := w.steps()
		if err := w.check(ways); err != nil {
			return fail(via, err)
		}
		path = append(path, frame{w, ways, via})
		return nil
	}
	first := newWorld(s)
	x.fresh(first)
	path = append(path, frame{w: first, ways: first.steps()})
	for len(path) > 0 {
		top := &path[len(path)-1]
		if len(top.ways) == 0 {
			path = path[:len(path)-1]
			continue
		}
		way := top.ways[0]
		top.ways = top.ways[1:]
		w := top.w.clone()
		if err := w.take(way); err != nil {
			return len(x.seen), fail(way, err)
		}
		if err := enter(w, way); err != nil {
			return len(x.seen), err
		}
	}
	return len(x.seen), nil
}

// fresh reports whether w is new. Worlds that differ only in the names of nodes other than home
// are the same.
func (x *explorer) fresh(w *world) bool {
	best := [2]uint64{^uint64(0), ^uint64(0)}
	x.names.rank(w)
	for _, x.names.node = range renamingsOf[len(w.states)] {
		x.encode(w)
		h := [2]uint64{maphash.Bytes(x.seeds[0], x.buf), maphash.Bytes(x.seeds[1], x.buf)}
		if h[0] < best[0] || h[0] == best[0] && h[1] < best[1] {
			best = h
		}
	}
	if _, old := x.seen[best]; old {
		return false
	}
	x.seen[best] = struct{}{}
	return true
}

var renamingsOf [maxNodes + 1][][]kmutex.Node

func init() {
	for n := 1; n <= maxNodes; n++ {
		renamingsOf[n] = renamings(n)
	}
}

// renamings returns the permutations of the nodes that leave home, node 1, alone.
func renamings(n int) [][]kmutex.Node {
	var out [][]kmutex.Node
	var grow func(prefix, rest []kmutex.Node)
	grow = func(prefix, rest []kmutex.Node) {
		if len(rest) == 0 {
			out = append(out, slices.Clone(prefix))
			return
		}
		for i := range rest {
			left := slices.Delete(slices.Clone(rest), i, i+1)
			grow(append(slices.Clone(prefix), rest[i]), left)
		}
	}
	var rest []kmutex.Node
	for i := 2; i <= n; i++ {
		rest = append(rest, kmutex.Node(i))
	}
	grow([]kmutex.Node{0, 1}, rest)
	return out
}

// table maps old names to new ones. No run of a small world uses more.
type table [48]byte

const maxNodes = 4

// rank renames baton numbers and seat serials.
func (n *names) rank(w *world) {
	n.early, n.alike, n.number, n.serial = w.scope.early, w.scope.barring == 0, table{}, [maxNodes + 1]table{}
	n.places = w.scope.barring+w.scope.probes > 0
	seat := func(s kmutex.Seat) { n.serial[s.Node][s.Serial] = 1 }
	for i := range w.states {
		s := w.states[i]
		n.number[s.Number], n.number[s.Where.Number] = 1, 1
		for _, p := range s.Parked {
			n.number[p.Number] = 1
		}
		for _, batch := range s.Batches {
			seat(batch.Next.Seat)
			if n.places {
				n.serial[s.Self][batch.Number] = 1
				n.serial[batch.Next.Node][batch.Next.Batch] = 1
				n.serial[batch.Before.Node][batch.Before.Batch] = 1
			}
		}
		for _, it := range s.Tails {
			seat(it)
		}
		for _, it := range s.Seats {
			seat(kmutex.Seat{Node: s.Self, Serial: it.Serial})
			seat(it.Child)
		}
	}
	for _, e := range w.flight {
		if e.Message.Kind == kmutex.KindSkip {
			n.serial[e.From][e.Message.Number] = 1
		} else {
			n.number[e.Message.Number] = 1
		}
		seat(e.Message.Seat)
		seat(e.Message.Child)
		switch {
		case !n.places:
		case e.Message.Kind == kmutex.KindRequest:
			n.serial[e.Message.Origin][e.Message.Batch] = 1
		case e.Message.Kind == kmutex.KindBaton:
			n.serial[e.To][e.Message.Batch] = 1
		case e.Message.Kind == kmutex.KindOffer, e.Message.Kind == kmutex.KindSkip:
			n.serial[e.To][e.Message.Batch] = 1
			n.serial[e.Message.Origin][e.Message.Other] = 1
		}
		for _, it := range e.Message.Tails {
			seat(it)
		}
	}
	n.number[0] = 0 // "none" keeps its name
	count(&n.number)
	for i := range n.serial {
		n.serial[i][0] = 0
		count(&n.serial[i])
	}
}

func count(used *table) {
	var next byte
	for i := range used {
		if used[i] != 0 {
			next++
			used[i] = next
		}
	}
}

// encode writes the world into x.buf under x.names.
func (x *explorer) encode(w *world) {
	n := &x.names
	var order [maxNodes]int
	for i := range w.states {
		order[n.node[i+1]-1] = i
	}
	b := append(x.buf[:0], byte(w.cancels), byte(w.probes))
	for _, i := range order[:len(w.states)] {
		b = append(b, byte(w.acquired[i]))
		b = appendBool(b, w.asking[i])
		b = appendBool(append(b, byte(w.bars[i])), w.retrying[i])
		b = n.appendState(b, w.states[i])
	}
	for len(x.keys) < len(w.flight) {
		x.keys = append(x.keys, nil)
	}
	keys := x.keys[:len(w.flight)]
	for i := range keys {
		e := &w.flight[i]
		keys[i] = n.appendMessage(append(keys[i][:0], byte(n.node[e.To])), &e.Message)
		if n.places {
			keys[i] = n.appendPlace(keys[i], e)
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, key := range keys {
		b = append(b, byte(len(key)))
		b = append(b, key...)
	}
	x.buf = b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func (n *names) appendSeat(b []byte, s kmutex.Seat) []byte {
	return append(b, byte(n.node[s.Node]), n.serial[s.Node][s.Serial])
}

// appendState encodes the part of a state that decides its future.
func (n *names) appendState(b []byte, s *kmutex.State) []byte {
	b = append(b, byte(n.node[s.Parent]), byte(len(s.Batches)))
	for _, batch := range s.Batches {
		b = append(b, byte(len(batch.Requests)))
		b = append(b, byte(n.node[batch.Next.Node]))
		b = n.appendSeat(b, batch.Next.Seat)
	}
	b = append(b, byte(len(s.Pending)))
	b = appendBool(b, s.Asked)
	b = append(b, byte(len(s.Running))) // with which tokens: under early binding the seats say so
	b = appendBool(b, s.Baton)
	b = append(b, n.number[s.Number], n.token(kmutex.Token(s.Counter)), byte(s.Free.Len()))
	b = append(b, byte(s.Back.Len()), byte(s.Stock.Len()), byte(s.Due), byte(s.Wanted), byte(len(s.Parked)))
	for _, p := range s.Parked {
		b = append(b, n.number[p.Number], byte(p.Free.Len()), byte(p.Want))
		b = n.appendNodes(b, p.Resting)
	}
	b = n.appendWhich(b, s)
	b = n.appendNodes(b, s.Resting)
	b = append(b, n.number[s.Where.Number], byte(n.node[s.Where.Holder]))
	for _, seat := range s.Tails {
		b = n.appendSeat(b, seat)
	}
	b = append(b, byte(len(s.Seats)))
	for _, seat := range s.Seats {
		b = append(b, n.serial[s.Self][seat.Serial], byte(seat.Token))
		b = appendBool(b, seat.Request != 0)
		b = n.appendSeat(b, seat.Child)
	}
	return b
}

// appendWhich encodes which batches there are under late binding, and which tokens are where.
func (n *names) appendWhich(b []byte, s *kmutex.State) []byte {
	if !n.places {
		return b
	}
	for _, batch := range s.Batches {
		b = append(b, n.serial[s.Self][batch.Number], n.serial[batch.Next.Node][batch.Next.Batch])
		b = append(b, byte(n.node[batch.Before.Node]), n.serial[batch.Before.Node][batch.Before.Batch], byte(batch.Before.Changes), byte(batch.Next.Changes), batch.Stood)
		b = appendBool(b, batch.Leaves)
	}
	if n.alike {
		return append(b, byte(s.Offered.Len()))
	}
	for _, g := range s.Running {
		b = append(b, byte(g.Token))
	}
	for _, p := range s.Parked {
		b = fmt.Append(b, p.Free)
	}
	return fmt.Append(b, s.Counter, s.Free, s.Back, s.Stock, s.Offered, s.Barred)
}

func (n *names) appendPlace(b []byte, e *kmutex.Envelope) []byte {
	switch e.Message.Kind {
	case kmutex.KindRequest:
		b = append(b, n.serial[e.Message.Origin][e.Message.Batch])
	case kmutex.KindBaton:
		b = append(b, n.serial[e.To][e.Message.Batch])
	case kmutex.KindOffer, kmutex.KindSkip:
		b = append(b, n.serial[e.To][e.Message.Batch], n.serial[e.Message.Origin][e.Message.Other], byte(e.Message.Changes))
		if e.Message.Kind == kmutex.KindSkip {
			b = append(b, byte(n.node[e.From]), n.serial[e.From][e.Message.Number])
		}
	default:
	}
	if n.alike {
		return b
	}
	return fmt.Append(b, e.Message.Counter, e.Message.Free)
}

func (n *names) appendNodes(b []byte, nodes []kmutex.Node) []byte {
	b = append(b, byte(len(nodes)))
	for _, it := range nodes {
		b = append(b, byte(n.node[it]))
	}
	return b
}

func (n *names) appendMessage(b []byte, m *kmutex.Message) []byte {
	number := n.number[m.Number]
	if m.Kind == kmutex.KindSkip {
		number = 0 // appendPlace has it
	}
	b = append(b, byte(m.Kind), byte(n.node[m.Origin]), n.token(m.Token), number,
		n.token(kmutex.Token(m.Counter)), byte(m.Free.Len()), byte(n.node[m.Holder]), byte(m.Want))
	if m.Kind == kmutex.KindTokens {
		b = append(b, byte(m.Hops)) // of a Request they change nothing
	}
	b = n.appendNodes(b, m.Resting)
	b = n.appendSeat(b, m.Seat)
	b = n.appendSeat(b, m.Child)
	for _, s := range m.Tails {
		b = n.appendSeat(b, s)
	}
	return b
}

// token returns the name of q: none under late binding.
func (n *names) token(q kmutex.Token) byte {
	if !n.early {
		return 0
	}
	return byte(q)
}

// soak asks for the long searches.
var soak = os.Getenv("KGATE_SOAK") != ""

// Every world of up to three nodes with two requests each, and of four nodes with one, with k from
// 1 to 3, both bindings and one cancel, keeps every invariant, and no request waits at any end. The
// largest worlds are searched only with KGATE_SOAK.
func TestExplore(t *testing.T) {
	scopes := []scope{
		{nodes: 1, k: 1, requests: 2, cancels: 1},
		{nodes: 2, k: 1, requests: 2, cancels: 1},
		{nodes: 2, k: 2, requests: 2, cancels: 1},
		{nodes: 2, k: 3, requests: 2, cancels: 1},
		{nodes: 3, k: 1, requests: 1, cancels: 1},
		{nodes: 3, k: 2, requests: 1, cancels: 1},
		{nodes: 3, k: 1, requests: 2, cancels: 1},
		{nodes: 4, k: 1, requests: 1, cancels: 1},
		{nodes: 2, k: 2, requests: 2, cancels: 1, probes: 1},
		{nodes: 3, k: 1, requests: 1, cancels: 1, probes: 1},
		{nodes: 4, k: 1, requests: 1, cancels: 1, probes: 1},
		{nodes: 2, k: 2, requests: 2, barring: 1},
		{nodes: 2, k: 2, requests: 1, barring: 2},
		{nodes: 3, k: 2, requests: 1, barring: 1},
	}
	if soak { // hundreds of thousands of states each
		scopes = append(scopes,
			scope{nodes: 3, k: 2, requests: 2, cancels: 1},
			scope{nodes: 3, k: 3, requests: 2, cancels: 1},
			scope{nodes: 4, k: 2, requests: 1, cancels: 1},
			scope{nodes: 4, k: 3, requests: 1, cancels: 1},
			scope{nodes: 3, k: 1, requests: 2, cancels: 1, probes: 1},
			scope{nodes: 3, k: 1, requests: 2, cancels: 2, probes: 2}, // neighbours leave
			scope{nodes: 2, k: 2, requests: 2, barring: 1, probes: 1},
			scope{nodes: 3, k: 2, requests: 1, barring: 1, probes: 1},
			scope{nodes: 3, k: 2, requests: 1, barring: 2},
		)
	}
	for _, early := range []bool{false, true} {
		for _, s := range scopes {
			if s.early = early; early && s.barring+s.probes > 0 {
				continue
			}
			t.Run(s.String(), func(t *testing.T) {
				if testing.Short() && (s.nodes == 4 || s.nodes == 3 && s.requests == 2) {
					t.Skip("tens of thousands of states and more")
				}
				t.Parallel()
				n, err := explore(s)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d states", n)
			})
		}
	}
}
