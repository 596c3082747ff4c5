package gateway

import (
	"crypto/rand"
	"log/slog"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership"
	"github.com/kgate/kgate/replication"
)

// desk is where a pool's tickets are kept at one incarnation of a gateway. The
// pool's lock guards it. Tickets end in [desk.end] alone.
type desk struct {
	pool     *pool
	table    *replication.Table
	replicas *replication.Replicas
	copies   *replication.Copies // outlive the incarnation
	tickets  map[string]*ticket
	clients  map[string]int // tickets of each client that is told apart
	ended    endings
	written  uint64 // version that is on disk
	// moved wakes whoever waits for a ticket, or for a version to be synced.
	moved signal
}

// ticket is one of them.
type ticket struct {
	id     string
	client string // empty: nobody in particular
	slot   *Slot
	ttl    time.Duration
	// holdMax is how long it may keep its slot, and ends when that is over; zero:
	// it has none, or may keep it.
	holdMax time.Duration
	ends    time.Time
	stamp   int64
	note    string
	// version has to be synced before the holder is told of the present state.
	version uint64
	// expires is when it ends without a sign of its holder. A Test under way is
	// one.
	expires time.Time
	expiry  *time.Timer
	tests   int
	used    bool // by a request
}

func newDesk(p *pool, copies *replication.Copies) *desk {
	table := replication.NewTable(p.self)
	return &desk{
		pool: p, table: table, replicas: replication.NewReplicas(table), copies: copies,
		tickets: make(map[string]*ticket), clients: make(map[string]int),
	}
}

// take puts a new ticket in line.
func (d *desk) take(ask Ask, ttl time.Duration, note string) (*ticket, error) {
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails
	t := &ticket{id: replication.NewID(secret, d.pool.self), client: ask.Client, ttl: ttl, holdMax: ask.HoldMax, note: note}
	if limit := d.pool.cfg.ClientTickets; limit > 0 && t.client != "" && d.clients[t.client] >= limit {
		return nil, ErrClientLimit
	}
	if d.table.Len() >= replication.MaxRecords {
		return nil, ErrQueueFull
	}
	s, err := d.pool.line(ask, t)
	if err != nil {
		return nil, err
	}
	if t.slot = s; t.stamp == 0 { // not granted at once
		t.stamp = s.since.UnixNano()
		d.note(t)
	}
	d.keep(t, 0)
	return t, nil
}

// keep lets t live for its time to live, and no less than least.
func (d *desk) keep(t *ticket, least time.Duration) {
	d.tickets[t.id] = t
	if t.client != "" {
		d.clients[t.client]++
	}
	t.expires = d.pool.g.now().Add(least)
	d.sign(t)
	t.expiry = time.AfterFunc(t.expires.Sub(d.pool.g.now()), func() { d.expire(t) })
}

// sign notes that t's holder is there. It does not take back what t was given
// before.
func (d *desk) sign(t *ticket) {
	if until := d.pool.g.now().Add(t.ttl); until.After(t.expires) {
		t.expires = until
	}
	if !t.ends.IsZero() && t.ends.Before(t.expires) {
		t.expires = t.ends
	}
}

// expire ends t, unless its holder has been there meanwhile.
func (d *desk) expire(t *ticket) {
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	if d.tickets[t.id] != t {
		return
	}
	if t.tests > 0 {
		d.sign(t)
	}
	if left := t.expires.Sub(d.pool.g.now()); left > 0 {
		t.expiry.Reset(left)
		return
	}
	if !t.ends.IsZero() && !t.ends.After(d.pool.g.now()) {
		d.end(t, EndHoldMax)
		return
	}
	d.end(t, EndExpired)
}

// granted notes that t has its slot. The slot is not in t yet when it came at
// once.
func (d *desk) granted(t *ticket, s *Slot) {
	t.slot, t.stamp = s, s.since.UnixNano()
	if t.holdMax > 0 {
		now := d.pool.g.now()
		t.ends = now.Add(t.holdMax)
		if t.expiry != nil && t.ends.Before(t.expires) { // it is in line already
			t.expires = t.ends
			t.expiry.Reset(t.holdMax)
		}
	}
	d.note(t)
}

// note writes t into the table and lets the change go to the successors.
func (d *desk) note(t *ticket) {
	d.write(t)
	d.push()
}

// write is note without a push.
func (d *desk) write(t *ticket) {
	r := replication.Record{ID: t.id, Stamp: t.stamp, TTL: t.ttl, State: replication.StateWaiting, Note: t.note, Used: t.used, HoldMax: t.holdMax}
	if !t.ends.IsZero() {
		r.Ends = t.ends.UnixNano()
	}
	if t.slot.state == slotGranted {
		r.State, r.Token = replication.StateGranted, t.slot.grant.Token
		r.Fence = replication.Fence{Epoch: t.slot.epoch, Serial: t.slot.grant.Serial}
	}
	version, err := d.table.Put(r)
	if err != nil {
		// It stays unsynced, so nobody is ever told of it, and expires.
		d.pool.log.Error("ticket cannot be kept", slog.Any("error", err))
		version = ^uint64(0)
	}
	t.version = version
}

// end takes t out and gives its slot or place back.
func (d *desk) end(t *ticket, why Ending) {
	delete(d.tickets, t.id)
	if d.clients[t.client]--; d.clients[t.client] <= 0 {
		delete(d.clients, t.client)
	}
	t.expiry.Stop()
	d.ended.add(t.id, why)
	d.table.Delete(t.id)
	t.slot.release()
	d.push()
	d.moved.signal(true)
}

// synced reports whether t's holder may be told of its present state.
func (d *desk) synced(t *ticket) bool {
	return t.version <= d.replicas.Synced() && d.kept(t.version)
}

// follow takes over the replicas of a new view.
func (d *desk) follow(view *membership.View, replicas int) {
	self, _ := view.Member(d.pool.self)
	var successors, members []kmutex.Node
	for _, name := range view.Ring().Successors(self.Name, replicas) {
		m, _ := view.Named(name)
		successors = append(successors, m.Node)
	}
	var newest kmutex.Node
	for _, m := range view.Members {
		members = append(members, m.Node)
		newest = max(newest, m.Node)
	}
	d.replicas.Follow(successors, members)
	lost := d.lost(view)
	d.copies.Follow(func(n kmutex.Node) bool { return slices.Contains(members, n) }, lost, newest)
	d.table.Forget(lost)
	d.push()
	d.moved.signal(true)
}

// lost tells which nodes have left tickets of this pool, maybe.
func (d *desk) lost(view *membership.View) func(kmutex.Node) bool {
	return func(n kmutex.Node) bool {
		return slices.ContainsFunc(view.Lost, func(l membership.Lost) bool { return l.Node == n })
	}
}

// report is this gateway's word on what lost ones left.
func (d *desk) report(view *membership.View) *replication.Report {
	r := replication.NewReport(d.replicas, d.copies, d.lost(view))
	return &r
}

// inherit takes over what lost gateways left, before the machine begins the
// epoch in which it runs or waits here. Refused are the numbers of tickets that
// the machine is to give up again. A lost gateway may not know yet that it is,
// and renew its tickets as long as its lease runs: their first time to live here
// begins after that.
func (d *desk) inherit(in []replication.Inheritance) (refused []kmutex.Ticket) {
	for _, i := range in {
		version, err := d.table.Absorb(i.Bequest)
		if err != nil {
			d.pool.log.Error("tickets of a lost gateway cannot be taken over", slog.Uint64("node", uint64(i.Owner)), slog.Any("error", err))
			refused = append(refused, i.Tickets...)
			continue
		}
		for n, r := range i.Records {
			if d.tickets[r.ID] != nil {
				refused = append(refused, i.Tickets[n])
				continue
			}
			t := &ticket{id: r.ID, ttl: r.TTL, stamp: r.Stamp, holdMax: r.HoldMax, note: r.Note, used: r.Used, version: version}
			if r.Ends != 0 {
				t.ends = time.Unix(0, r.Ends)
			}
			t.slot = d.pool.inherit(i.Tickets[n], r, t)
			d.keep(t, d.pool.view.LeaseWait()+t.ttl)
		}
		d.pool.log.Info("tickets of a lost gateway taken over", slog.Uint64("node", uint64(i.Owner)), slog.Int("tickets", len(i.Records)))
	}
	return refused
}

// renew brings the table in line with the epoch that has begun, in one push: slots
// that were taken over have their tokens back, but for those whose tokens others
// have, which are gone. A token has another number only after a defect.
func (d *desk) renew(running []kmutex.Grant, settled []kmutex.Node) {
	tokens := make(map[kmutex.Ticket]kmutex.Grant, len(running))
	for _, g := range running {
		tokens[g.Ticket] = g
	}
	var gone []*ticket
	for _, t := range d.tickets {
		if t.slot.state != slotGranted {
			continue
		}
		g, runs := tokens[t.slot.ticket]
		switch {
		case !runs && t.slot.ticket >= kmutex.FirstAdopted && t.slot.grant.Token == kmutex.NoToken:
			gone = append(gone, t)
		case runs && g != t.slot.grant:
			t.slot.grant = g
			d.write(t)
		}
	}
	for _, t := range gone {
		t.slot.forget()
		d.end(t, EndLost)
	}
	d.copies.Settled(settled...)
	d.push()
}

// void ends the desk with its incarnation. What it had is from now on a copy of
// what a lost owner left.
func (d *desk) void() {
	for _, t := range d.tickets {
		t.expiry.Stop()
	}
	if err := d.copies.Restore(d.table.Since(0)); err != nil {
		d.pool.log.Error("tickets of the lost incarnation cannot be kept", slog.Any("error", err))
	}
	d.moved.signal(true)
}

// endings remembers how the last tickets ended, so that their holders get a
// better answer than that nobody knows them.
type endings struct {
	how  map[string]Ending
	next int
	ring [endingsKept]string
}

const endingsKept = 4096

func (e *endings) add(id string, how Ending) {
	if e.how == nil {
		e.how = make(map[string]Ending)
	}
	delete(e.how, e.ring[e.next])
	e.ring[e.next], e.how[id] = id, how
	e.next = (e.next + 1) % endingsKept
}
