package heirs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// errBroken means that the recovery did something else than to find a ticket or
// to say that it is lost.
var errBroken = errors.New("heirs: the recovery is wrong")

// Fleet is gateways that keep each other's tickets.
type Fleet struct {
	ring    *chordring.Ring
	members []*member
	byName  map[string]*member
}

// member is one gateway. Number n is at members[n-1].
type member struct {
	node       kmutex.Node
	name       string
	replicator *replication.Replicator
	table      *replication.Table
	replicas   *replication.ReplicaSet
}

// New returns n gateways with two tickets each, one waiting and one granted,
// whose tables are synced with p successors.
func New(n, p int) (*Fleet, error) {
	f := &Fleet{byName: make(map[string]*member, n)}
	names := make([]string, n)
	for i := range n {
		node := kmutex.Node(i + 1)
		names[i] = fmt.Sprintf("gw-%d", node)
		table := replication.NewTable(node)
		m := &member{
			node: node, name: names[i], table: table,
			replicator: replication.NewReplicator(table), replicas: replication.NewReplicaSet(),
		}
		f.members, f.byName[names[i]] = append(f.members, m), m
	}
	f.ring = chordring.New(names)
	for _, m := range f.members {
		var successors []kmutex.Node
		for _, name := range f.ring.Successors(m.name, p) {
			successors = append(successors, f.byName[name].node)
		}
		m.replicator.Follow(successors, successors) // of other members it need not know
		if err := f.fill(m); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// fill gives m its tickets and replicates them.
func (f *Fleet) fill(m *member) error {
	for i, state := range []admission.TicketState{admission.TicketWaiting, admission.TicketGranted} {
		serial := 2*uint64(m.node) + uint64(i)
		var secret [16]byte
		binary.BigEndian.PutUint64(secret[:], serial)
		r := replication.Record{
			ID: replication.NewID(secret, m.node), Stamp: int64(serial), TTL: admission.MinTTL, State: state,
		}
		if state == admission.TicketGranted {
			r.Token, r.Fence = kmutex.Token(m.node-1), replication.Fence{Epoch: 1, Serial: serial}
		}
		if _, err := m.table.Put(r); err != nil {
			return err
		}
	}
	for m.replicator.Synced() < m.table.Version() {
		for _, o := range m.replicator.Next() {
			a, err := f.members[o.To-1].replicas.Receive(o.Push)
			if err != nil {
				return err
			}
			m.replicator.Acked(o.To, a)
		}
	}
	return nil
}

// Lose takes the gateways with gone set out at once and lets the others recover.
// It returns how many of their tickets have a new owner and how many are gone.
// The fleet itself stays as it was, for another loss.
func (f *Fleet) Lose(gone []bool) (kept, missing int, err error) {
	isLost := func(n kmutex.Node) bool { return gone[n-1] }
	var running kmutex.TokenSet
	var reports []replication.Report
	var names []string
	for i, m := range f.members {
		if gone[i] {
			continue
		}
		running.Add(kmutex.Token(m.node - 1))
		reports = append(reports, replication.NewReport(m.replicator, m.replicas, isLost))
		names = append(names, m.name)
	}
	ring := chordring.New(names)
	var lost []replication.Lost
	for i, m := range f.members {
		if gone[i] {
			l := replication.Lost{Node: m.node}
			if successor := ring.Successors(m.name, 1); len(successor) == 1 {
				l.Successor = f.byName[successor[0]].node
			}
			lost = append(lost, l)
		}
	}
	return f.judge(lost, replication.PlanHandOvers(lost, running, reports))
}

// judge lets the successors take over what the plan gives them and looks for every
// ticket of every lost gateway.
func (f *Fleet) judge(lost []replication.Lost, plan replication.Plan) (kept, missing int, err error) {
	taken := make(map[kmutex.Node]*replication.Table, len(plan.HandOvers))
	for _, b := range plan.HandOvers {
		table := replication.NewTable(b.Successor) // the successor's own is for the next loss
		if _, err := table.Absorb(b); err != nil {
			return 0, 0, err
		}
		if taken[b.Owner] != nil {
			return 0, 0, fmt.Errorf("%w: node %d has two successors", errBroken, b.Owner)
		}
		taken[b.Owner] = table
	}
	for _, l := range lost {
		had := f.members[l.Node-1].table.Records()
		table := taken[l.Node]
		if (table == nil) != slices.Contains(plan.Unknown, l.Node) {
			return 0, 0, fmt.Errorf("%w: node %d is neither known to be missing nor taken over", errBroken, l.Node)
		}
		if table == nil {
			missing += len(had)
			continue
		}
		if !slices.Equal(table.Records(), had) {
			return 0, 0, fmt.Errorf("%w: node %d takes over other tickets than node %d had", errBroken, l.Successor, l.Node)
		}
		kept += len(had)
	}
	return kept, missing, nil
}
