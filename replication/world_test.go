package replication

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// world is some gateways, the pushes on the wire between them, and the answers that tickets' holders
// got. It checks the package's promises.
type world struct {
	rng     *rand.Rand
	p       int // successors
	living  map[kmutex.Node]*gateway
	lost    []Lost
	next    kmutex.Node
	wire    []letter
	tickets []*truth
	byID    map[string]*truth
	serial  uint64
	epoch   uint64
	spare   int // how many more may be lost before all is quiet again
	holder  map[kmutex.Token]*truth
	last    map[kmutex.Node]*gateway // as they were when they were lost
	out     map[kmutex.Node]uint64   // when they were
	spoke   map[kmutex.Node]bool     // gateways that told any holder anything
	// witnessed counts the lost gateways that are known to have told nothing.
	witnessed int
	wrong     error // a witnessed gateway had told something
	// now counts the steps, in seconds; alone is since when no living gateway tells of a ticket.
	now   time.Duration
	alone map[*truth]time.Duration
	// reckless: any number of gateways may be lost at any time. Then tickets may be forgotten,
	// but no other ticket may get a token that the holder of a forgotten ticket relies on.
	reckless bool
	settled  bool            // no lease of a lost gateway runs
	disks    map[string]bool // names with a disk: they tell and acknowledge only what is on it, if reckless
}

// relied is how long a holder relies on a ticket without any answer.
const relied = 40 * time.Second

type gateway struct {
	node       kmutex.Node
	name       string
	table      *Table
	replicator *Replicator
	replicas   *ReplicaSet
	tell       []tell
	disk       []*Delta
	written    uint64   // the version of the table that the disk has
	acks       []letter // of changes that the disk does not have
	unknown    Unknown
}

// tell is a state of a ticket that its holder is told once version is synced.
type tell struct {
	version uint64
	t       *truth
	state   int
	adopted bool // from a lost gateway: until then it tells the holder nothing at all
}

// truth is one ticket: all states that it ever had, and the newest that its holder was told.
type truth struct {
	id      string
	history []Record // a zero Record: ended
	told    int      // index into history; -1: nothing
	// given back by its holder, who counts on it no longer
	done bool
}

type letter struct {
	from, to kmutex.Node
	push     []byte
	ack      []byte
	seq      uint64
}

const (
	tokens = 6
	places = 7 // names that gateways can have
)

func newWorld(seed uint64, n, p int) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 4)), p: p, living: make(map[kmutex.Node]*gateway), byID: make(map[string]*truth),
		holder: make(map[kmutex.Token]*truth), last: make(map[kmutex.Node]*gateway),
		out: make(map[kmutex.Node]uint64), spoke: make(map[kmutex.Node]bool), alone: make(map[*truth]time.Duration),
		disks: make(map[string]bool),
	}
	for i := range places {
		w.disks[fmt.Sprint("g", i)] = seed>>(2+i)&1 == 1
	}
	for range n {
		w.join()
	}
	w.spare = p
	return w
}

func (w *world) members() []kmutex.Node {
	var out []kmutex.Node
	for n := range w.living {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func (w *world) pick() *gateway {
	m := w.members()
	return w.living[m[w.rng.IntN(len(m))]]
}

func (w *world) named(name string) *gateway {
	for _, g := range w.living {
		if g.name == name {
			return g
		}
	}
	return nil
}

func (w *world) ring() *chordring.Ring {
	var names []string
	for _, g := range w.living {
		names = append(names, g.name)
	}
	return chordring.New(names)
}

func (w *world) isLiving(n kmutex.Node) bool { return w.living[n] != nil }

func (w *world) isLost(n kmutex.Node) bool {
	return slices.ContainsFunc(w.lost, func(l Lost) bool { return l.Node == n })
}

// join adds a gateway under a free name.
func (w *world) join() {
	for i := range places {
		if name := fmt.Sprint("g", (i+int(w.next))%places); w.named(name) == nil {
			w.next++
			w.enter(w.next, name)
			return
		}
	}
}

// durable reports whether g tells and acknowledges only what is on its disk.
func (w *world) durable(g *gateway) bool { return w.reckless && w.disks[g.name] }

// enter adds a gateway. The tables of the last gateway of that name are gone, or on disk, or in
// memory.
func (w *world) enter(node kmutex.Node, name string) {
	g := &gateway{node: node, name: name, table: NewTable(node), replicas: NewReplicaSet()}
	g.replicator = NewReplicator(g.table)
	g.replicator.limit = 3 * recordSize
	g.table.memory = 1
	if old := w.lastOf(name); old != nil {
		var kept []*Delta
		switch w.rng.IntN(4) {
		case 0, 1:
			kept, g.disk = old.disk, old.disk
		case 2:
			kept, g.disk = old.all(), old.disk
		}
		for _, d := range kept {
			if err := g.replicas.Restore(d); err != nil {
				panic(err)
			}
		}
	}
	w.living[g.node] = g
	stays := w.stays()
	g.replicas.Drop(func(n kmutex.Node) bool {
		owner := Stay{Node: n, Out: w.out[n]}
		if had := cmp.Or(w.living[n], w.last[n]); had != nil {
			owner.Name = had.name
		}
		return Missed(Stay{Name: name, Node: node}, owner, stays, func(n kmutex.Node) bool { return g.replicas.Of(n) != nil })
	})
	w.newView()
}

// lastOf returns the last lost gateway of a name; nil: there was none.
func (w *world) lastOf(name string) (last *gateway) {
	for _, g := range w.last {
		if g.name == name && (last == nil || g.node > last.node) {
			last = g
		}
	}
	return last
}

// all returns all tables that a gateway has, its own and the replicas.
func (g *gateway) all() []*Delta {
	all := []*Delta{g.table.Since(0)}
	for _, owner := range g.replicas.Owners() {
		if d := g.replicas.Of(owner).Since(0); d != nil {
			all = append(all, d)
		}
	}
	return all
}

// restart loses a gateway and brings it back at once: the next view has another incarnation of it.
func (w *world) restart(g *gateway) {
	w.remove(g)
	w.enter(w.next, g.name)
}

// stays returns the stays of all gateways.
func (w *world) stays() []Stay {
	var stays []Stay
	for n, g := range w.living {
		stays = append(stays, Stay{Name: g.name, Node: n})
	}
	for n, g := range w.last {
		stays = append(stays, Stay{Name: g.name, Node: n, Out: w.out[n]})
	}
	return stays
}

// newView tells all gateways the members.
func (w *world) newView() {
	ring, members := w.ring(), w.members()
	w.findSuccessors()
	for _, n := range members {
		g := w.living[n]
		var successors []kmutex.Node
		for _, name := range ring.Successors(g.name, w.p) {
			successors = append(successors, w.named(name).node)
		}
		g.replicator.Follow(successors, members)
		g.replicas.Follow(w.isLiving, w.isLost, w.next)
		g.table.Forget(w.isLost)
	}
	w.witness()
}

// witness notes the lost gateways that have told no holder anything, as [Witnessed] tells their successors.
func (w *world) witness() {
	stays := w.stays()
	for _, l := range w.lost {
		g, lost := w.living[l.Successor], w.last[l.Node]
		if g == nil || g.table.has(l.Node) || g.replicas.Of(l.Node) != nil ||
			!Witnessed(Stay{Name: g.name, Node: g.node}, Stay{Name: lost.name, Node: l.Node, Out: w.out[l.Node]}, 0, stays) {
			continue
		}
		if w.spoke[l.Node] {
			w.wrong = fmt.Errorf("node %d says that node %d told nothing, and it did", g.node, l.Node)
		}
		w.witnessed++
		if err := g.replicas.Restore(NewTable(l.Node).Since(0)); err != nil {
			panic(err)
		}
	}
}

func (w *world) lose(g *gateway) {
	w.remove(g)
	w.newView()
}

func (w *world) remove(g *gateway) {
	delete(w.living, g.node)
	w.next++ // an entry of the log, too
	w.last[g.node], w.out[g.node] = g, uint64(w.next)
	for _, r := range g.table.Records() {
		if t := w.byID[r.ID]; !slices.ContainsFunc(g.tell, func(x tell) bool { return x.t == t && x.adopted }) {
			w.alone[t] = w.now
		}
	}
	w.spare--
	w.lost = append(w.lost, Lost{Node: g.node, Successor: g.node})
}

// findSuccessors finds the living successors that take over lost gateways' tickets.
func (w *world) findSuccessors() {
	for i, l := range w.lost {
		if w.isLiving(l.Successor) {
			continue
		}
		name := w.last[l.Successor].name
		next := w.ring().Successors(name, 1)
		if len(next) == 0 {
			next = []string{w.ring().Owner(name)}
		}
		w.lost[i].Successor = w.named(next[0]).node
	}
}

// change makes a new ticket, moves one on, or ends one.
func (w *world) change(g *gateway) {
	records := g.table.Records()
	if len(records) == 0 || w.rng.IntN(3) == 0 {
		w.take(g)
		return
	}
	r := records[w.rng.IntN(len(records))]
	t := w.byID[r.ID]
	_, free := w.freeToken()
	switch {
	case r.State == admission.TicketWaiting && free && w.rng.IntN(2) == 0:
		w.grant(g, t)
	case w.rng.IntN(2) == 0:
		w.serial++
		r.Note = fmt.Sprint(w.serial)
		w.put(g, t, r)
	default:
		w.finish(g, t)
	}
}

// take puts a new ticket in line.
func (w *world) take(g *gateway) *truth {
	var secret [16]byte
	binary.BigEndian.PutUint64(secret[:], w.serial)
	w.serial++
	t := &truth{id: NewID(secret, g.node), told: -1}
	w.byID[t.id] = t
	w.tickets = append(w.tickets, t)
	w.put(g, t, Record{ID: t.id, Stamp: int64(w.serial), TTL: admission.MinTTL, State: admission.TicketWaiting})
	return t
}

// grant lets a waiting ticket have a free token.
func (w *world) grant(g *gateway, t *truth) {
	r, _ := g.table.Get(t.id)
	token, _ := w.freeToken()
	w.serial++
	r.State, r.Token, r.Fence = admission.TicketGranted, token, Fence{Epoch: 1, Serial: w.serial}
	w.holder[token] = t
	w.put(g, t, r)
}

// finish ends a ticket as its holder asks.
func (w *world) finish(g *gateway, t *truth) {
	if r, _ := g.table.Get(t.id); r.State == admission.TicketGranted && w.holder[r.Token] == t {
		delete(w.holder, r.Token)
	}
	t.done = true
	g.table.Delete(t.id)
	t.history = append(t.history, Record{})
	g.tell = append(g.tell, tell{g.table.Version(), t, len(t.history) - 1, false})
}

func (w *world) freeToken() (kmutex.Token, bool) {
	for q := range kmutex.Token(tokens) {
		if w.holder[q] == nil {
			return q, true
		}
	}
	return 0, false
}

func (w *world) put(g *gateway, t *truth, r Record) {
	v, err := g.table.Put(r)
	if err != nil {
		panic(err)
	}
	t.history = append(t.history, r)
	g.tell = append(g.tell, tell{v, t, len(t.history) - 1, false})
}

// send puts the gateway's pushes on the wire.
func (w *world) send(g *gateway) {
	for _, o := range g.replicator.Next() {
		data, err := json.Marshal(o.Push)
		if err != nil {
			panic(err)
		}
		w.wire = append(w.wire, letter{from: g.node, to: o.To, push: data, seq: o.Push.Seq})
	}
}

// deliver takes a letter from the wire. It arrives, or, with faults, arrives twice, is lost, which
// the sender notices, or only seems to be lost.
func (w *world) deliver(i int, faults bool) error {
	l := w.wire[i]
	fate := w.rng.IntN(10)
	if !faults || fate != 0 {
		w.wire = slices.Delete(w.wire, i, i+1)
	}
	if from := w.living[l.from]; faults && fate <= 2 && from != nil && l.push != nil {
		from.replicator.Failed(l.to, l.seq)
		if fate == 2 {
			return nil
		}
	}
	g := w.living[l.to]
	if g == nil {
		if from := w.living[l.from]; from != nil && l.push != nil {
			from.replicator.Failed(l.to, l.seq)
		}
		return nil
	}
	if l.ack != nil {
		var a Ack
		if err := json.Unmarshal(l.ack, &a); err != nil {
			return err
		}
		g.replicator.Acked(l.from, a)
		return w.tellHolders(g)
	}
	p := new(Push)
	if err := json.Unmarshal(l.push, p); err != nil {
		return err
	}
	if !w.isLiving(p.Owner) {
		return nil // as the receiver knows from its view
	}
	a, err := g.replicas.Receive(p)
	if err != nil && a.Seq == 0 {
		return err
	}
	data, err := json.Marshal(a)
	if back := (letter{from: l.to, to: l.from, ack: data}); w.durable(g) {
		g.acks = append(g.acks, back)
	} else {
		w.wire = append(w.wire, back)
	}
	return err
}

// tellHolders tells holders the states that are synced.
func (w *world) tellHolders(g *gateway) error {
	synced := g.replicator.Synced()
	if w.durable(g) {
		synced = min(synced, g.written)
	}
	g.tell = slices.DeleteFunc(g.tell, func(x tell) bool {
		if x.version > synced {
			return false
		}
		x.t.told, w.spoke[g.node] = max(x.t.told, x.state), true
		return true
	})
	return nil
}

// write saves everything to the disk.
func (w *world) write(g *gateway) {
	if w.reckless && !w.disks[g.name] {
		return
	}
	g.disk, g.written = g.all(), g.table.Version()
	w.wire, g.acks = append(w.wire, g.acks...), nil
}

// recover plans the hand-overs, and tells some successors or all.
func (w *world) recover(all bool) error {
	f, err := w.form()
	if err != nil {
		return err
	}
	for n := range f.Unknown() {
		if w.reckless {
			break
		}
		for _, t := range w.tickets {
			if owner, _ := ParseID(t.id); owner == n && t.told >= 0 && !t.done && w.where(t) == nil {
				return fmt.Errorf("node %d is unknown, and a holder was told of %s", n, t.id)
			}
		}
	}
	for _, n := range w.members() {
		a := f.Answer(n)
		w.living[n].unknown.Learn(a.Bounds, w.now)
		for _, i := range a.HandOvers {
			if !all && w.rng.IntN(2) == 0 {
				continue
			}
			if err := w.handOver(w.living[n], i, a.Install.Running); err != nil {
				return err
			}
		}
	}
	for _, n := range w.members() {
		w.living[n].replicas.Settled(f.Answer(n).Settled...)
	}
	return w.check()
}

// form plans an epoch. Lost gateways have stopped, so nothing need be owed; at times it is owed all
// the same, as while a lease runs.
func (w *world) form() (*EpochChange, error) {
	w.epoch++
	members := w.members()
	change := kmutex.EpochChange{Epoch: w.epoch + 1, K: tokens, Home: members[0], Owed: !w.settled && (!w.reckless || w.rng.IntN(3) == 0)}
	f := NewEpochChange(change, members, slices.Clone(w.lost), relied)
	for i, n := range members {
		g := w.living[n]
		left := NewReport(g.replicator, g.replicas, w.isLost)
		if err := left.Validate(); err != nil {
			return nil, err
		}
		r := EpochReport{Left: &left, Report: kmutex.Report{
			Node: n, Epoch: w.epoch + 1, Installed: w.epoch, Tokens: kmutex.NewTokenSet(tokens),
		}}
		for i, rec := range g.table.Records() {
			if rec.State == admission.TicketGranted {
				r.Running = append(r.Running, kmutex.Grant{Request: kmutex.Request(i + 1), Token: rec.Token, Serial: rec.Fence.Serial})
			}
		}
		for q := range kmutex.Token(tokens) {
			if i == 0 && w.holder[q] == nil {
				r.Free.Add(q)
			}
		}
		r.Bounds = g.unknown.Message(w.now)
		if err := f.Admit(r); err != nil {
			return nil, err
		}
	}
	if doubled := f.Doubled(); len(doubled) > 0 {
		return nil, fmt.Errorf("tokens %v run twice", doubled)
	}
	return f, w.giveOut(f)
}

// giveOut gives the tokens that an epoch frees to other tickets.
func (w *world) giveOut(f *EpochChange) error {
	for _, n := range w.members() {
		for _, q := range f.Answer(n).Install.Free.Tokens() {
			t := w.holder[q]
			if t == nil {
				continue
			}
			if w.relies(t, q) {
				return fmt.Errorf("token %d is free, and the holder of ticket %s relies on it", q, t.id)
			}
			delete(w.holder, q)
		}
	}
	return nil
}

// relies reports whether the holder of a ticket relies on a slot with the token q.
func (w *world) relies(t *truth, q kmutex.Token) bool {
	at := w.where(t)
	if len(at) > 0 {
		if r, _ := w.living[at[0]].table.Get(t.id); r.State == admission.TicketGranted && r.Token == q {
			return true
		}
	}
	if since, lost := w.alone[t]; t.told < 0 || t.done || lost && w.now-since >= relied {
		return false
	}
	r := t.history[t.told]
	return r.State == admission.TicketGranted && r.Token == q
}

// handOver lets a successor take over one lost gateway's tickets. running has the tokens that their
// slots have now.
func (w *world) handOver(successor *gateway, i HandOver, running []kmutex.Grant) error {
	v, err := successor.table.Absorb(i)
	if err != nil {
		return err
	}
	for n, r := range i.Records {
		t := w.byID[r.ID]
		successor.tell = append(successor.tell, tell{v, t, slices.Index(t.history, r), true})
		if r.State != admission.TicketGranted {
			continue
		}
		at := slices.IndexFunc(running, func(g kmutex.Grant) bool { return g.Request == i.Tickets[n] })
		if at < 0 { // another ticket has its token
			successor.table.Delete(r.ID)
			t.history = append(t.history, Record{})
			continue
		}
		w.holder[running[at].Token] = t
		if r.Token != running[at].Token {
			r.Token = running[at].Token
			w.put(successor, t, r)
			w.send(successor)
		}
	}
	return nil
}

// where returns the living gateways that have the ticket in their tables.
func (w *world) where(t *truth) (at []kmutex.Node) {
	for _, n := range w.members() {
		if _, ok := w.living[n].table.Get(t.id); ok {
			at = append(at, n)
		}
	}
	return at
}

// check checks what holds at any time: no ticket is at two gateways, and no token has two holders.
func (w *world) check() error {
	if w.wrong != nil {
		return w.wrong
	}
	has := make(map[kmutex.Token]string)
	for _, t := range w.tickets {
		at := w.where(t)
		if len(at) > 1 {
			return fmt.Errorf("ticket %s is at nodes %v", t.id, at)
		}
		if t.told < 0 || t.done {
			continue
		}
		if r := t.history[t.told]; r.State == admission.TicketGranted && (!w.reckless || w.relies(t, r.Token)) {
			if other := has[r.Token]; other != "" {
				return fmt.Errorf("token %d has two holders: %s and %s", r.Token, other, t.id)
			}
			has[r.Token] = t.id
		}
	}
	return nil
}

// calm delivers everything until nothing moves, and checks that every answer to a holder still
// holds.
func (w *world) calm() error {
	if err := w.recover(true); err != nil {
		return err
	}
	for round := 0; ; round++ {
		if round > 10_000 {
			return fmt.Errorf("still %d letters after %d rounds", len(w.wire), round)
		}
		for _, n := range w.members() {
			w.send(w.living[n])
			if w.reckless {
				w.write(w.living[n])
			}
		}
		if len(w.wire) == 0 {
			break
		}
		if err := w.deliver(w.rng.IntN(len(w.wire)), false); err != nil {
			return err
		}
	}
	w.spare = min(w.p, len(w.living)-1) // this many gateways have a replica
	for _, n := range w.members() {
		g := w.living[n]
		if g.replicator.Synced() != g.table.Version() || !g.replicator.caughtUp() {
			return fmt.Errorf("node %d is synced to %d of %d", n, g.replicator.Synced(), g.table.Version())
		}
		if err := w.tellHolders(g); err != nil {
			return err
		}
	}
	if err := w.recover(true); err != nil { // drops the replicas that are settled
		return err
	}
	// Tokens that only lost gateways had are free again.
	for q, t := range w.holder {
		if w.where(t) == nil {
			delete(w.holder, q)
		}
	}
	return w.nothingMissing()
}

func (w *world) nothingMissing() error {
	for _, t := range w.tickets {
		if t.told < 0 {
			continue
		}
		at := w.where(t)
		if len(at) == 0 {
			if !t.done {
				return fmt.Errorf("ticket %s is nowhere; its holder was told %+v", t.id, t.history[t.told])
			}
			continue
		}
		r, _ := w.living[at[0]].table.Get(t.id)
		if !slices.Contains(t.history[t.told:], r) {
			return fmt.Errorf("ticket %s has gone back to %+v; its holder was told %+v", t.id, r, t.history[t.told])
		}
		owner, _ := ParseID(t.id)
		if w.isLost(owner) && w.successor(owner) != at[0] {
			return fmt.Errorf("ticket %s is at node %d, and the successor is %d", t.id, at[0], w.successor(owner))
		}
	}
	for _, n := range w.members() {
		for _, owner := range w.living[n].replicas.Owners() {
			if g := w.living[owner]; g == nil || g.replicator.successors[n] == nil {
				return fmt.Errorf("node %d still has a replica of node %d", n, owner)
			}
		}
	}
	return nil
}

func (w *world) successor(n kmutex.Node) kmutex.Node {
	for _, l := range w.lost {
		if l.Node == n {
			return l.Successor
		}
	}
	return 0
}

// step does one random thing that can happen.
func (w *world) step() error {
	w.now += time.Second
	g := w.pick()
	switch x := w.rng.IntN(100); {
	case x < 30:
		w.change(g)
	case x < 55:
		w.send(g)
	case x < 85:
		if len(w.wire) > 0 {
			// Mostly a new letter, so that some take long.
			n := len(w.wire)
			return w.deliver(max(w.rng.IntN(n), w.rng.IntN(n), w.rng.IntN(n)), true)
		}
	case x < 88:
		switch {
		case w.reckless && w.rng.IntN(4) == 0:
			w.restart(g)
		case w.reckless && len(w.living) > 1, w.spare > 0 && len(w.living) > 2:
			w.lose(g)
		}
	case x < 91:
		w.join()
	case x < 95:
		return w.recover(w.rng.IntN(2) == 0)
	case x < 98, w.durable(g):
		w.write(g)
		return w.tellHolders(g)
	case !w.reckless:
		return w.calm()
	}
	return w.check()
}

// Beyond the promise: any number of gateways may be lost at any time, and come back with old disks.
// One, two or all other gateways keep copies of each table. No ticket gets a token that another
// ticket's holder relies on. When no holder relies on a token any more, all tokens are back.
func TestLostWithAllWhoKnew(t *testing.T) {
	schedules, unknown := 2000, 0
	if testing.Short() {
		schedules = 300
	}
	for seed := range uint64(schedules) {
		w := newWorld(seed, 1+int(seed%4), []int{1, 2, places}[seed%3])
		w.reckless = true
		for step := range 200 {
			if err := w.step(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
		for _, g := range w.living {
			unknown += len(g.unknown)
		}
		w.settled = true
		err := w.recover(true) // since now they all are known to be unknown
		for range 2 {
			w.now += relied
			err = cmp.Or(err, w.recover(true))
		}
		for q, had := range w.holder {
			if len(w.where(had)) == 0 {
				err = cmp.Or(err, fmt.Errorf("token %d is not back", q))
			}
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if unknown < schedules/10 {
		t.Errorf("the tickets of %d lost gateways were unknown in %d schedules, want more", unknown, schedules)
	}
}

// The promise: as long as at most p gateways are lost before the others have made new replicas,
// every answer to a holder still holds, and no token has two holders.
func TestRandomSchedules(t *testing.T) {
	schedules := 1200
	if testing.Short() {
		schedules = 100
	}
	for seed := range uint64(schedules) {
		w := newWorld(seed, 5, 2)
		var err error
		for step := 0; step < 300 && err == nil; step++ {
			err = w.step()
		}
		if err == nil {
			err = w.calm()
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// A gateway comes back with old copies, and the other gateway, which was alone meanwhile, is lost
// before it has sent its table again: the slots that it gave out stay withheld. So they do if the
// first gateway is started again before it has dropped anything on disk.
func TestBackWithOldCopies(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(seed, 2, places)
		w.reckless, w.settled = true, true
		owner, other := w.living[1], w.living[2]
		w.disks[owner.name], w.disks[other.name] = false, true
		tk := w.take(owner)
		if err := w.calm(); err != nil {
			t.Fatal(err)
		}
		w.write(other)
		w.lose(other)
		w.grant(owner, tk)
		if err := w.tellHolders(owner); err != nil || tk.history[tk.told].State != admission.TicketGranted {
			t.Fatalf("told %d, %v", tk.told, err)
		}
		w.next++
		w.enter(w.next, other.name)
		if again := w.next; seed%2 == 0 {
			w.restart(w.living[again])
			if err := w.living[w.next].replicas.Restore(NewTable(again).Since(0)); err != nil { // it has told nothing
				t.Fatal(err)
			}
		}
		w.lose(owner)
		for range 2 {
			if err := w.recover(true); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

// A successor with a disk is killed and comes back at once, and the owner is lost before it has sent
// its table again. Everything that the owner has told is on that disk.
func TestKilledBeforeItsDiskIsWritten(t *testing.T) {
	told := 0
	for i := range 400 {
		w := newWorld(uint64(i), 3, 1)
		w.reckless, w.settled = true, true
		owner := w.living[1]
		successor := w.named(w.ring().Successors(owner.name, 1)[0])
		for _, g := range w.living {
			w.disks[g.name] = g == successor
		}
		tk := w.take(owner)
		if err := w.calm(); err != nil {
			t.Fatal(err)
		}
		w.grant(owner, tk)
		for letters := range i % 8 {
			w.send(owner)
			if letters == i/8%8 {
				w.write(successor)
			}
			if len(w.wire) > 0 {
				if err := w.deliver(w.rng.IntN(len(w.wire)), false); err != nil {
					t.Fatal(err)
				}
			}
		}
		told += tk.told
		w.restart(successor)
		w.lose(owner)
		for range 2 {
			if err := w.recover(true); err != nil {
				t.Fatalf("schedule %d: %v", i, err)
			}
		}
	}
	if told == 0 {
		t.Error("no holder was told of its slot")
	}
}

// between returns a free name that stands between two others on the ring.
func (w *world) between(name, next string) string {
	for i := range places {
		free := fmt.Sprint("g", i)
		if w.named(free) == nil && chordring.New([]string{name, next, free}).Successors(name, 1)[0] == free {
			return free
		}
	}
	panic("no name is free there")
}

// An owner and its successor are lost when the owner has just told a holder something that a former
// successor does not know. At times the former successor has just been started again. The slot stays
// withheld.
func TestFormerSuccessor(t *testing.T) {
	for i := range 600 {
		w := newWorld(uint64(i), 2, 1)
		w.reckless, w.settled = true, true
		owner, former := w.living[1], w.living[2]
		w.disks[owner.name], w.disks[former.name] = false, true
		tk := w.take(owner)
		if err := w.calm(); err != nil {
			t.Fatal(err)
		}
		w.write(former)
		w.next++
		w.enter(w.next, w.between(owner.name, former.name))
		successor := w.living[w.next]
		w.grant(owner, tk)
		restart, last := i/10%5, i%10
		for letters := range last {
			if letters == restart {
				w.restart(former)
			}
			for _, n := range w.members() {
				w.send(w.living[n])
			}
			if len(w.wire) > 0 {
				if err := w.deliver(w.rng.IntN(len(w.wire)), false); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.remove(owner)
		w.lose(successor)
		for range 2 {
			if err := w.recover(true); err != nil {
				t.Fatalf("restarted after %d letters, lost after %d: %v", restart, last, err)
			}
		}
	}
}

// Two losses at every boundary of messages: the owner is lost after some letters, its successor
// after some more, while one of the owner's slots ends and its token goes to another gateway.
func TestTwoLosses(t *testing.T) {
	for first := range 40 {
		for second := range 40 {
			for order := range uint64(4) {
				if err := twoLosses(order, first, second); err != nil {
					t.Fatalf("order %d, owner lost after %d letters, successor after %d more: %v", order, first, second, err)
				}
			}
		}
	}
}

func twoLosses(order uint64, first, second int) error {
	w := newWorld(order, 4, 2)
	for _, g := range w.living {
		g.replicator.limit = maxPush // a change is seen as soon as it arrives
	}
	owner, other := w.living[1], w.living[2]
	var tickets []*truth
	for i := range 5 {
		g := owner
		if i == 4 {
			g = other
		}
		t := w.take(g)
		tickets = append(tickets, t)
		w.send(g)
		w.grant(g, t)
		w.send(g)
	}
	// One is ended; its token goes to a ticket of the other gateway.
	w.finish(owner, tickets[1])
	w.send(owner)
	late := w.take(other)
	w.grant(other, late)
	w.send(other)
	deliver := func(letters int) error {
		for range letters {
			for _, n := range w.members() {
				w.send(w.living[n])
			}
			if len(w.wire) == 0 {
				return nil
			}
			if err := w.deliver(w.rng.IntN(len(w.wire)), false); err != nil {
				return err
			}
		}
		return nil
	}
	if err := deliver(first); err != nil {
		return err
	}
	w.lose(owner)
	if err := w.recover(true); err != nil {
		return err
	}
	if err := deliver(second); err != nil {
		return err
	}
	w.lose(w.living[w.successor(1)])
	return w.calm()
}
