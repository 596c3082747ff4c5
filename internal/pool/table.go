package pool

import (
	"container/heap"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// Tickets are those of one pool that one incarnation answers for.
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
}

// Disk is what is known of the tickets on disk.
type Disk uint8

// The disk.
const (
	DiskUnread Disk = iota // what is there has not been brought in yet
	DiskNone               // none is there, or it cannot be used: nobody waits for it
	DiskRead               // what was there has been brought in; changes go there
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

// Ended returns how one of the last tickets ended.
func (ts *Tickets) Ended(id string) (admission.Ending, bool) {
	how, known := ts.ended.how[id]
	return how, known
}

// Of returns how many tickets a client has.
func (ts *Tickets) Of(client string) int { return ts.clients[client] }

// Lag tells how many changes each successor has not acknowledged.
func (ts *Tickets) Lag() map[kmutex.Node]int { return ts.replicator.Lag() }

// Table and Replicas go to disk.
func (ts *Tickets) Table() *replication.Table { return ts.table }

// Replicas are those of other gateways' tables.
func (ts *Tickets) Replicas() *replication.ReplicaSet { return ts.replicas }

// Synced reports whether t's holder may be told of its present state: whoever may
// have to answer for it knows that.
func (ts *Tickets) Synced(t *Ticket) bool {
	return t.version <= ts.replicator.Synced() && (ts.disk != DiskRead || t.version <= ts.written)
}

// Absorbed reports whether the tickets of a lost gateway have been taken over here.
func (ts *Tickets) Absorbed(n kmutex.Node) bool {
	return slices.ContainsFunc(ts.table.Absorbed(), func(a replication.Absorbed) bool { return a.Node == n })
}

// Full reports whether no more tickets are taken in.
func (ts *Tickets) Full() bool { return ts.table.Len() >= replication.MaxRecords }

// keep lets t live until its holder must have stopped that gave a sign now, and no
// less than least.
func (ts *Tickets) keep(now time.Duration, t *Ticket, least time.Duration) {
	ts.byID[t.ID] = t
	if t.Client != "" {
		ts.clients[t.Client]++
	}
	t.Expires = max(t.Expires, now+least)
	t.sign(now)
	heap.Push(&ts.due, t)
}

// write puts t's state into the table.
func (ts *Tickets) write(t *Ticket) error {
	r := replication.Record{
		ID: t.ID, Stamp: t.Stamp, TTL: t.TTL, State: admission.TicketWaiting, Note: t.Note, Used: t.Used, UsedBy: t.UsedBy,
		HoldMax: t.HoldMax, Ends: t.endsAt,
	}
	if t.Granted {
		r.State, r.Token = admission.TicketGranted, t.Grant.Token
		r.Fence = replication.Fence{Epoch: t.Epoch, Serial: t.Grant.Serial}
	}
	version, err := ts.table.Put(r)
	if err != nil {
		version = ^uint64(0) // it stays unsynced: no answer ever shows it, and it expires
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
	ts.ended.add(t.ID, how)
	ts.table.Delete(t.ID)
}

// expiries are tickets by when they end, as container/heap wants them.
type expiries []*Ticket

// Len implements heap.Interface.
func (e expiries) Len() int { return len(e) }

// Less implements heap.Interface.
func (e expiries) Less(i, j int) bool { return e[i].Expires < e[j].Expires }

// Swap implements heap.Interface.
func (e expiries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

// Push implements heap.Interface.
func (e *expiries) Push(x any) {
	t := x.(*Ticket) //nolint:forcetypeassert // nothing else is in the heap
	t.index = len(*e)
	*e = append(*e, t)
}

// Pop implements heap.Interface.
func (e *expiries) Pop() any {
	last := len(*e) - 1
	t := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return t
}

// endings remembers how the last tickets ended, so that their holders get a
// better answer than that nobody knows them.
type endings struct {
	how  map[string]admission.Ending
	next int
	ring [endingsKept]string
}

const endingsKept = 4096

func (e *endings) add(id string, how admission.Ending) {
	if e.how == nil {
		e.how = make(map[string]admission.Ending)
	}
	delete(e.how, e.ring[e.next])
	e.ring[e.next], e.how[id] = id, how
	e.next = (e.next + 1) % endingsKept
}
