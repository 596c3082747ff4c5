package replication

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// record returns a record of a ticket that node 1 took in.
func record(n int, change ...func(*Record)) Record {
	var secret [16]byte
	copy(secret[:], fmt.Sprint("secret ", n))
	r := Record{ID: NewID(secret, 1), Stamp: int64(n), TTL: 30 * time.Second, State: admission.TicketWaiting}
	for _, c := range change {
		c(&r)
	}
	return r
}

func granted(q kmutex.Token, epoch, serial uint64) func(*Record) {
	return func(r *Record) { r.State, r.Token, r.Fence = admission.TicketGranted, q, Fence{epoch, serial} }
}

func put(t *testing.T, into *Table, records ...Record) {
	t.Helper()
	for _, r := range records {
		if _, err := into.Put(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTable(t *testing.T) {
	table := NewTable(1)
	put(t, table, record(2), record(1))
	if v, err := table.Put(record(2)); err != nil || v != 2 || table.Version() != 3 {
		t.Errorf("the same again: version %d, %v; table %d", v, err, table.Version())
	}
	put(t, table, record(1, granted(3, 7, 1)))
	if !table.Delete(record(2).ID) || table.Delete(record(2).ID) || table.Version() != 5 || table.Len() != 1 {
		t.Errorf("version %d, %d records", table.Version(), table.Len())
	}
	want := &Delta{
		Owner: 1, From: 3, To: 5, Put: []Put{{4, record(1, granted(3, 7, 1))}}, Deleted: []Deletion{{5, record(2).ID}},
	}
	if got := table.Since(3); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("since 3: %v, want %v", got, want)
	}
	if got := table.Since(5); len(got.Put)+len(got.Deleted) != 0 || got.From != 5 || got.To != 5 {
		t.Errorf("since 5: %v", got)
	}
	if got := table.Since(0); !got.complete() || len(got.Put) != 1 {
		t.Errorf("whole: %v", got)
	}
}

func TestTableRefuses(t *testing.T) {
	table := NewTable(1)
	for name, r := range map[string]Record{
		"no id":           record(1, func(r *Record) { r.ID = "" }),
		"a year":          record(1, func(r *Record) { r.TTL = 365 * 24 * time.Hour }),
		"no time":         record(1, func(r *Record) { r.TTL = 0 }),
		"long note":       record(1, func(r *Record) { r.Note = strings.Repeat("x", admission.MaxNote+1) }),
		"note of bytes":   record(1, func(r *Record) { r.Note = "\xff" }),
		"no state":        record(1, func(r *Record) { r.State = "" }),
		"waiting, token":  record(1, func(r *Record) { r.Token = 3 }),
		"negative token":  record(1, granted(-1, 1, 1)),
		"id of node zero": record(1, func(r *Record) { r.ID = strings.TrimSuffix(r.ID, "1") + "0" }),
	} {
		if _, err := table.Put(r); !errors.Is(err, errInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range MaxRecords {
		put(t, table, record(n))
	}
	if _, err := table.Put(record(MaxRecords)); !errors.Is(err, errFull) {
		t.Errorf("one too many: %v", err)
	}
	put(t, table, record(5, granted(1, 1, 1))) // those that are there go on
	if table.Len() != MaxRecords || table.Version() != MaxRecords+2 {
		t.Errorf("%d records, version %d", table.Len(), table.Version())
	}
}

func TestAbsorb(t *testing.T) {
	successor := NewTable(2)
	b := HandOver{Owner: 1, Successor: 2, Records: []Record{record(1), record(2, granted(0, 1, 1))}, Absorbed: []kmutex.Node{7}}
	v, err := successor.Absorb(b)
	if err != nil || v != successor.Version() || successor.Len() != 2 {
		t.Fatalf("version %d of %d, %d records, %v", v, successor.Version(), successor.Len(), err)
	}
	put(t, successor, record(3))
	successor.Delete(record(1).ID)
	if again, err := successor.Absorb(b); err != nil || again != v || successor.Len() != 2 {
		t.Errorf("again: %d, %v, %d records", again, err, successor.Len())
	}
	if got := fmt.Sprint(successor.Absorbed()); got != "[{4 7} {5 1}]" {
		t.Errorf("absorbed %s", got)
	}
	successor.Forget(func(n kmutex.Node) bool { return n == 1 })
	if got := fmt.Sprint(successor.Absorbed()); got != "[{5 1}]" {
		t.Errorf("absorbed %s", got)
	}
	for name, b := range map[string]HandOver{
		"another's": {Owner: 1, Successor: 3},
		"its own":   {Owner: 2, Successor: 2},
		"nobody's":  {Successor: 2},
		"a bad one": {Owner: 5, Successor: 2, Records: []Record{{}}},
	} {
		if _, err := successor.Absorb(b); !errors.Is(err, errInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReplica(t *testing.T) {
	table := NewTable(1)
	put(t, table, record(1), record(2))
	c := NewReplica(1)
	first := table.Since(2)
	if err := c.Apply(first); !errors.Is(err, ErrGap) || c.progress() != (Progress{}) {
		t.Errorf("changes without a table: %v, %+v", err, c.progress())
	}
	whole := table.Since(0)
	put(t, table, record(3))
	next := table.Since(3)
	put(t, table, record(4))
	last := table.Since(4)
	for i, step := range []struct {
		d       *Delta
		gap     bool
		version uint64
	}{{whole, false, 3}, {last, true, 3}, {next, false, 4}, {next, false, 4}, {whole, false, 4}, {last, false, 5}, {next, false, 5}, {table.Since(3), false, 5}} {
		if err := c.Apply(step.d); errors.Is(err, ErrGap) != step.gap || err != nil && !step.gap || c.Version() != step.version {
			t.Errorf("step %d: %v, version %d, want %d", i, err, c.Version(), step.version)
		}
	}
	if !slices.Equal(c.Records(), table.Records()) {
		t.Errorf("%v, want %v", c.Records(), table.Records())
	}
	if err := c.Apply(NewTable(2).Since(0)); !errors.Is(err, errInvalid) {
		t.Errorf("another owner's: %v", err)
	}
	if d := c.Since(2); !d.Whole {
		t.Errorf("a replica cannot know what was deleted before it had all: %v", d)
	}
	if d := c.Since(3); d.Whole || len(d.Put) != 2 {
		t.Errorf("since 3: %v", d)
	}
}

// A whole table of the worst notes goes in chunks that each fit.
func TestChunks(t *testing.T) {
	table := NewTable(math.MaxUint64)
	for n := range 3000 {
		put(t, table, record(n, func(r *Record) {
			r.Note = strings.Repeat("\x01", admission.MaxNote)
			r.Stamp = math.MinInt64
			r.TTL = admission.MaxTTL
		}, granted(math.MaxInt32, math.MaxUint64, math.MaxUint64)))
	}
	r, c := NewReplicator(table), NewReplicaSet()
	r.Follow([]kmutex.Node{2}, []kmutex.Node{2, math.MaxUint64})
	if lag := r.Lag(); len(lag) != 1 || lag[2] != int(table.Version()) {
		t.Errorf("lag %v before anything went, of %d versions", lag, table.Version())
	}
	pushes := 0
	for out := r.Next(); len(out) > 0; out = r.Next() {
		data, err := json.Marshal(out[0].Push)
		if err != nil {
			t.Fatal(err)
		}
		p := new(Push)
		if err := json.Unmarshal(data, p); err != nil || len(data) > maxPush {
			t.Fatalf("push %d of %d bytes: %v", pushes, len(data), err)
		}
		if pushes == 2 { // what changes meanwhile comes along
			table.Delete(record(1).ID)
			put(t, table, record(3001))
		}
		a, err := c.Receive(p)
		if err != nil {
			t.Fatal(err)
		}
		r.Acked(2, a)
		if pushes++; c.Of(table.Owner()).Version() != 0 && r.Synced() != table.Version() {
			t.Fatalf("a part counts for the whole: %+v", c.Of(table.Owner()).progress())
		}
	}
	if lag := r.Lag(); lag[2] != 0 {
		t.Errorf("lag %v when everything has come", lag)
	}
	if pushes < 5 || !slices.Equal(c.Of(table.Owner()).Records(), table.Records()) {
		t.Errorf("%d pushes, %d records, want %d", pushes, len(c.Of(table.Owner()).Records()), table.Len())
	}
}

// If a transfer of the whole table starts over and its first chunk is lost, it does not go on where
// the transfer before it was.
func TestLostRestart(t *testing.T) {
	table := NewTable(1)
	table.memory = 1
	r, c := NewReplicator(table), NewReplicaSet()
	r.limit = 3 * recordSize
	r.Follow([]kmutex.Node{2}, []kmutex.Node{1, 2})
	put(t, table, record(1), record(2), record(3))
	begun := r.Next()[0].Push
	a, err := c.Receive(begun)
	if err != nil || a.Staged == 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	r.Acked(2, a)
	for n := range 3 { // and this table does not remember that
		table.Delete(record(n + 1).ID)
	}
	for range 20 {
		put(t, table, record(4, func(r *Record) { r.Stamp++ }), record(4))
	}
	r.Failed(2, r.Next()[0].Push.Seq)
	for out := r.Next(); len(out) > 0; out = r.Next() {
		if a, err = c.Receive(out[0].Push); err != nil {
			t.Fatal(err)
		}
		r.Acked(2, a)
	}
	if got := c.Of(1).Records(); !slices.Equal(got, table.Records()) {
		t.Errorf("replica %v, want %v", got, table.Records())
	}
}

func TestSettle(t *testing.T) {
	whole := func(owner kmutex.Node, records ...Record) *Delta {
		table := NewTable(owner)
		put(t, table, records...)
		return table.Since(0)
	}
	lost := []Lost{{Node: 1, Successor: 2}, {Node: 9, Successor: 2}, {Node: 10, Successor: 3, Over: true}, {Node: 11}, {Node: 12, Successor: 3}}
	var running kmutex.TokenSet
	running.Add(5)
	e := PlanHandOvers(lost, running, []Report{
		{Node: 2, Replicas: []*Delta{whole(1, record(1))}, Absorbed: []Absorbed{{4, 12}, {6, 13}}, Synced: 5},
		{Node: 3, Replicas: []*Delta{
			whole(1, record(4, granted(5, 1, 9)), record(2), record(1), record(3, granted(2, 1, 3))), whole(12, record(8)), whole(11),
		}},
		{Node: 4, Replicas: []*Delta{whole(1, record(7))}},
	})
	want := Plan{
		HandOvers: []HandOver{
			{Owner: 1, Successor: 2, Records: []Record{record(1), record(2), record(3, granted(2, 1, 3))}},
			{Owner: 10, Successor: 3},
		},
		Unknown: []kmutex.Node{9, 11},
		Settled: []kmutex.Node{12},
	}
	if got := fmt.Sprintf("%+v", e); got != fmt.Sprintf("%+v", want) {
		t.Errorf("%s\nwant %+v", got, want)
	}
	// Two lost gateways that both believe in a token: the later use is the true one.
	e = PlanHandOvers([]Lost{{Node: 1, Successor: 2}, {Node: 9, Successor: 2}}, nil, []Report{{Node: 2, Replicas: []*Delta{
		whole(1, record(1, granted(0, 3, 4))), whole(9, record(2, granted(0, 3, 5))),
	}}})
	if len(e.HandOvers[0].Records) != 0 || len(e.HandOvers[1].Records) != 1 {
		t.Errorf("%+v", e.HandOvers)
	}
}

// The tickets that a lost gateway had absorbed count only if its own replica is used: the successor
// of 2 took over an older replica, in which 2 had not absorbed 1 yet.
func TestSettleChain(t *testing.T) {
	absorbing := func(owner kmutex.Node, absorbed ...kmutex.Node) *Delta {
		table := NewTable(owner)
		for _, n := range absorbed {
			if _, err := table.Absorb(HandOver{Owner: n, Successor: owner}); err != nil {
				t.Fatal(err)
			}
		}
		return table.Since(0)
	}
	lost := []Lost{{Node: 1, Successor: 4}, {Node: 2, Successor: 4}, {Node: 3, Successor: 4}}
	e := PlanHandOvers(lost, nil, []Report{{Node: 4, Replicas: []*Delta{absorbing(1), absorbing(2, 1), absorbing(3, 2)}}})
	if len(e.HandOvers) != 2 || e.HandOvers[0].Owner != 1 || e.HandOvers[1].Owner != 3 {
		t.Errorf("%+v, want those of 1 and 3", e.HandOvers)
	}
}

// An owner is lost together with its p successors: its tickets are unknown, and the plan says so.
func TestAllReplicasLost(t *testing.T) {
	w := newWorld(1, 5, 2)
	w.rng.Uint64()
	g := w.pick()
	w.change(g)
	if err := w.calm(); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(w.ring().Successors(g.name, 2), g.name) {
		w.lose(w.named(name))
	}
	if err := w.calm(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("node %d is unknown", g.node)) {
		t.Errorf("%v", err)
	}
}

func TestIDs(t *testing.T) {
	id := NewID([16]byte{0: 1, 15: 255}, 71)
	if id != "aeaaaaaaaaaaaaaaaaaaaaaa74-1z" {
		t.Errorf("%s", id)
	}
	if owner, err := ParseID(id); owner != 71 || err != nil {
		t.Errorf("%d, %v", owner, err)
	}
	for _, bad := range []string{
		"", "-", "1z", strings.ToUpper(id), id + "-1", strings.Replace(id, "-", "", 1), id[1:], "a" + id, id + "zzzzzzzzzzzzzz",
		strings.Replace(id, "-1z", "-01z", 1), strings.Replace(id, "-1z", "-0", 1), strings.Replace(id, "-1z", "-+1z", 1),
		strings.Replace(id, "4-", "5-", 1), strings.Replace(id, "a", "1", 1), id + "\n",
	} {
		if owner, err := ParseID(bad); !errors.Is(err, errInvalid) {
			t.Errorf("%q: node %d, %v", bad, owner, err)
		}
	}
}

func FuzzPush(f *testing.F) {
	table := NewTable(1)
	for n := range 3 {
		if _, err := table.Put(record(n)); err != nil {
			f.Fatal(err)
		}
	}
	table.Delete(record(1).ID)
	for _, d := range []*Delta{table.Since(0), table.Since(2)} {
		data, err := json.Marshal(&Push{Seq: 1, Owner: 1, Delta: d})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"seq":1,"owner":3,"retire":true}`))
	f.Add([]byte(`{"seq":1,"owner":3,"delta":{"owner":3,"from":0,"to":1,"whole":true,"last":true}} {}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := new(Push)
		if json.Unmarshal(data, p) != nil {
			return
		}
		// A valid push can be taken in, in any state of the replica; an invalid push changes
		// nothing.
		valid := p.Validate()
		c := NewReplicaSet()
		_, _ = c.Receive(&Push{Seq: 1, Owner: 1, Delta: table.Since(0)})
		had := c.Of(1).Version()
		switch _, err := c.Receive(p); {
		case valid == nil && err != nil && !errors.Is(err, ErrGap):
			t.Errorf("valid, and %v", err)
		case valid != nil && (!errors.Is(err, errInvalid) || c.Of(1).Version() != had):
			t.Errorf("%v, and version %d after %d: %v", valid, c.Of(1).Version(), had, err)
		}
	})
}
