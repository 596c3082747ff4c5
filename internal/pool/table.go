package pool

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// Tickets are the tickets of one pool that belong to one incarnation.
type Tickets struct {
	table      *replication.Table
	replicator *replication.Replicator
	replicas   *replication.ReplicaSet // outlive the incarnation
	byID       map[string]*Ticket
	clients    map[string]int
	due        expiries
	ended      endings
	disk       Disk
	written    uint64 // the version that the disk has
	received   uint64 // how many pushes
}

// Disk says whether the tickets on disk are known.
type Disk uint8

// The values of Disk.
const (
	DiskUnread Disk = iota // it has not been read yet
	DiskNone               // there is none, or it cannot be used: nothing waits for it
	DiskRead               // it has been read, and changes are written to it
)

func newTickets(self kmutex.Node, replicas *replication.ReplicaSet, disk Disk) *Tickets {
	table := replication.NewTable(self)
	return &Tickets{
		table: table, replicator: replication.NewReplicator(table), replicas: replicas, disk: disk,
		byID: make(map[string]*Ticket), clients: make(map[string]int),
	}
}

// Get returns a ticket that has not ended; nil: there is none.
func (ts *Tickets) Get(id string) *Ticket { return ts.byID[id] }

// Ended returns how one of the last tickets ended, and whether its holder may know: as for
// [Tickets.Synced], because a gateway that is no member any more may be mistaken.
func (ts *Tickets) Ended(id string) (how admission.Ending, known, synced bool) {
	e, known := ts.ended.how[id]
	return e.how, known, ts.SyncedTo(e.version)
}

// Of returns how many tickets a client has.
func (ts *Tickets) Of(client string) int { return ts.clients[client] }

// Lag tells how many changes each successor has not acknowledged.
func (ts *Tickets) Lag() map[kmutex.Node]int { return ts.replicator.Lag() }

// Table and Replicas go to disk.
func (ts *Tickets) Table() *replication.Table { return ts.table }

// Replicas are those of other gateways' tables.
func (ts *Tickets) Replicas() *replication.ReplicaSet { return ts.replicas }

// Received tells how many pushes of other gateways have come in.
func (ts *Tickets) Received() uint64 { return ts.received }

// Synced reports whether t's holder may be shown its present state: every gateway that may
// take t over has it.
func (ts *Tickets) Synced(t *Ticket) bool { return ts.SyncedTo(t.version) }

// SyncedTo reports that of every change up to a version of the table.
func (ts *Tickets) SyncedTo(version uint64) bool {
	return version <= ts.replicator.Synced() && (ts.disk != DiskRead || version <= ts.written)
}

// Absorbed reports whether the tickets of a lost gateway have been taken over here.
func (ts *Tickets) Absorbed(n kmutex.Node) bool {
	return slices.ContainsFunc(ts.table.Absorbed(), func(a replication.Absorbed) bool { return a.Node == n })
}

// Full reports whether there is no room for another ticket.
func (ts *Tickets) Full() bool { return ts.table.Len() >= replication.MaxRecords }

// keep takes in a ticket whose Expires is set.
func (ts *Tickets) keep(t *Ticket) {
	ts.byID[t.ID] = t
	if t.Client != "" {
		ts.clients[t.Client]++
	}
	heap.Push(&ts.due, t)
}

// write puts t's state into the table, with the times that t has left as far as its next owner
// must go by them: all of them if this gateway is about to leave. A ticket that was taken over has
// told no holder of more, as long as it is silent; nor is its hold ever longer.
func (ts *Tickets) write(now time.Duration, t *Ticket, leaving bool) error {
	r := replication.Record{
		ID: t.ID, Stamp: t.Stamp, TTL: t.TTL, State: admission.TicketWaiting, Note: t.Note, Used: t.UsedBy != "", UsedBy: t.UsedBy,
		HoldMax: t.HoldMax, Ends: t.endsAt,
	}
	if t.Granted {
		r.State, r.Token = admission.TicketGranted, t.Grant.Token
		r.Fence = replication.Fence{Epoch: t.Epoch, Serial: t.Grant.Serial}
	}
	if t.Expires > 0 && (leaving || t.silent) {
		r.Left = max(t.Expires-now, 1)
	}
	if t.Expires > 0 && t.ends > 0 && (leaving || t.adopted) {
		r.HoldLeft = max(t.ends-now, 1)
	}
	if t.noteAt = 0; t.silent || r.HoldLeft > 0 {
		t.noteAt = now + noteEvery
	}
	version, err := ts.table.Put(r)
	if err != nil {
		version = ^uint64(0) // never synced: no answer shows the ticket, and it expires
	}
	t.version = version
	return err
}

// remove takes t out.
func (ts *Tickets) remove(t *Ticket, how admission.Ending) {
	delete(ts.byID, t.ID)
	if ts.clients[t.Client]--; ts.clients[t.Client] <= 0 {
		delete(ts.clients, t.Client)
	}
	heap.Remove(&ts.due, t.index)
	ts.table.Delete(t.ID)
	ts.ended.add(t.ID, ended{how, ts.table.Version()})
}

// note writes t into the table; at the end of the event the change goes to the successors.
func (p *Pool) note(now time.Duration, t *Ticket) {
	if err := p.tickets.write(now, t, p.handingOver); err != nil {
		p.fx.Err = fmt.Errorf("a ticket cannot be kept: %w", err)
	}
	if p.tickets.byID[t.ID] == t {
		heap.Fix(&p.tickets.due, t.index)
	}
	p.fx.Moved = true
}

// endings remembers how the last tickets ended, so that their holders get a better answer
// than that the ticket is unknown.
type endings struct {
	how  map[string]ended
	next int
	ring [endingsKept]string
}

// ended is how a ticket ended, and with which version of the table.
type ended struct {
	how     admission.Ending
	version uint64
}

const endingsKept = 4096

func (e *endings) add(id string, how ended) {
	if e.how == nil {
		e.how = make(map[string]ended)
	}
	delete(e.how, e.ring[e.next])
	e.ring[e.next], e.how[id] = id, how
	e.next = (e.next + 1) % endingsKept
}
