package kmutex_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/kmutex"
)

// TestBatchesLeave: while one request is served, most requests behind it are cancelled, in any order
// of events and messages. When no message is on its way, no batch is leaving.
func TestBatchesLeave(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 5))
		w := newChurn(churnScope{nodes: 2 + r.IntN(3), k: 1, requests: 12, cancels: 40, probes: 30}, r)
		for drain := false; len(w.log) < 700; drain = drain && len(w.flight) > 0 || r.IntN(40) == 0 {
			var ways []way
			for _, next := range w.ways() {
				if !next.ends {
					ways = append(ways, next)
				}
			}
			if drain {
				ways = w.mail(nil)
			}
			if len(ways) == 0 {
				if drain {
					continue
				}
				break
			}
			next := ways[r.IntN(len(ways))]
			w.log = append(w.log, next.name)
			err := next.take()
			if err == nil {
				err = w.check()
			}
			if err != nil {
				t.Fatalf("seed %d: %v\n%q", seed, err, w.log)
			}
		}
	}
}

// timed is a world of machines whose messages and timers take time.
type timed struct {
	t        *testing.T
	now      time.Duration
	due      []timedEvent // in the order of time
	machines []*kmutex.Machine
	ask      time.Duration
	delay    func(from, to kmutex.Node) time.Duration
	arrives  map[[2]kmutex.Node]time.Duration // of each link, its last message
	granted  map[kmutex.Request]bool          // requests of all nodes have numbers of one series
	asked    kmutex.Request
	batons   int
}

type timedEvent struct {
	at time.Duration
	do func()
}

func newTimed(t *testing.T, nodes int, delay func(from, to kmutex.Node) time.Duration) *timed {
	w := &timed{t: t, delay: delay, arrives: make(map[[2]kmutex.Node]time.Duration), granted: make(map[kmutex.Request]bool)}
	change := kmutex.EpochChange{Epoch: 1, K: 1, Home: 1}
	for n := range kmutex.Node(nodes) {
		w.machines = append(w.machines, kmutex.New(n+1, new(coordinator.Late)))
		w.ask += 4 * delay(n+1, (n+1)%kmutex.Node(nodes)+1) // a gateway asks once in 2 N round trips
	}
	for n := range kmutex.Node(nodes) {
		w.step(n+1, kmutex.Event{Kind: kmutex.EventInstall, Install: kmutex.Genesis(change, n+1)})
	}
	return w
}

func (w *timed) after(d time.Duration, do func()) {
	at := w.now + d
	i, _ := slices.BinarySearchFunc(w.due, at+1, func(e timedEvent, at time.Duration) int { return cmp.Compare(e.at, at) })
	w.due = slices.Insert(w.due, i, timedEvent{at, do})
}

func (w *timed) run(d time.Duration) {
	end := w.now + d
	for len(w.due) > 0 && w.due[0].at <= end {
		e := w.due[0]
		w.due = w.due[1:]
		w.now = e.at
		e.do()
	}
	w.now = end
}

func (w *timed) step(n kmutex.Node, e kmutex.Event) {
	fx, err := w.machines[n-1].Step(&e)
	if err != nil {
		w.t.Fatalf("%v: node %d: %v", w.now, n, err)
	}
	for _, e := range fx.Messages {
		if e.Message.Kind == kmutex.KindBaton {
			w.batons++
		}
		link := [2]kmutex.Node{e.From, e.To}
		w.arrives[link] = max(w.now+w.delay(e.From, e.To), w.arrives[link])
		w.after(w.arrives[link]-w.now, func() {
			w.step(e.To, kmutex.Event{Kind: kmutex.EventReceive, From: e.From, Message: &e.Message})
		})
	}
	for _, g := range fx.Grants {
		w.granted[g.Request] = true
	}
	if fx.AskTimer {
		w.after(w.ask, func() { w.step(n, kmutex.Event{Kind: kmutex.EventAskDue}) })
	}
	if fx.RetryTimer {
		w.after(time.Second, func() { w.step(n, kmutex.Event{Kind: kmutex.EventRetryDue}) })
	}
}

func (w *timed) acquire(n kmutex.Node) kmutex.Request {
	w.asked++
	w.step(n, kmutex.Event{Kind: kmutex.EventAcquire, Request: w.asked})
	return w.asked
}

// come has a client of node n ask again and again, until end, and wait for patience each time.
func (w *timed) come(n kmutex.Node, end time.Duration, patience func() time.Duration) {
	if w.now >= end {
		return
	}
	request := w.acquire(n)
	w.after(patience(), func() {
		w.step(n, kmutex.Event{Kind: kmutex.EventCancel, Request: request})
		w.come(n, end, patience)
	})
}

func (w *timed) batches() (n int) {
	for _, m := range w.machines {
		n += len(m.State().Batches)
	}
	return n
}

// TestLineStaysShort: behind a request that waits long, clients come and give up. The line is as long as they
// make it within seconds, however long that goes on and wherever their gateways are; and when they are gone,
// the baton goes past nobody.
func TestLineStaysShort(t *testing.T) {
	uniform := func(d time.Duration) func(from, to kmutex.Node) time.Duration {
		return func(kmutex.Node, kmutex.Node) time.Duration { return d }
	}
	for _, c := range []struct {
		name  string
		nodes int
		delay func(from, to kmutex.Node) time.Duration
	}{
		{"near", 3, uniform(5 * time.Millisecond)},
		{"one slow link", 3, func(from, to kmutex.Node) time.Duration {
			if from+to == 5 {
				return 150 * time.Millisecond
			}
			return 5 * time.Millisecond
		}},
		{"far", 10, uniform(50 * time.Millisecond)},
		{"very far", 10, uniform(150 * time.Millisecond)},
		{"many", 30, uniform(50 * time.Millisecond)},
		{"many very far", 30, uniform(150 * time.Millisecond)},
		{"any", 5, func(from, to kmutex.Node) time.Duration { return time.Duration(from*to%7) * 20 * time.Millisecond }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTimed(t, c.nodes, c.delay)
			holder, patient := w.acquire(1), w.acquire(1)
			w.run(50 * time.Millisecond)
			r := rand.New(rand.NewPCG(1, 1))
			const span = 2 * time.Minute
			for n := range kmutex.Node(c.nodes) {
				for i := range 5 {
					w.after(time.Duration(7*int(n)+20*i)*time.Millisecond, func() {
						w.come(n+1, w.now+span, func() time.Duration {
							if i == 0 {
								return time.Duration(900+r.IntN(1600)) * time.Millisecond
							}
							return time.Duration(50+r.IntN(150)) * time.Millisecond
						})
					})
				}
			}
			w.run(30 * time.Second)
			most, early := 0, w.batches()
			for range 90 {
				w.run(time.Second)
				most = max(most, w.batches())
			}
			w.run(10 * time.Second)
			last := w.acquire(3)
			w.run(5 * time.Second)
			kept, batons := w.batches(), w.batons
			w.step(1, kmutex.Event{Kind: kmutex.EventRelease, Request: holder})
			w.step(1, kmutex.Event{Kind: kmutex.EventRelease, Request: patient})
			w.run(5 * time.Second)
			moves := w.batons - batons
			t.Logf("%d batches after 30 s, at most %d later, %d when all but two have left; %d moves of the baton", early, most, kept, moves)
			if long := c.nodes * (10 + int(2*time.Second/w.ask)); early > long || most > long || kept > 3 || moves > 2 {
				t.Error("the line is long")
			}
			if !w.granted[patient] || !w.granted[last] {
				t.Error("who was patient is not served")
			}
		})
	}
}

// TestBothLeft: two batches of a node have left, and the second knows already. A token that is offered to the
// first one, late, goes home.
func TestBothLeft(t *testing.T) {
	m := kmutex.New(2, new(coordinator.Late))
	var fx *kmutex.Effects
	do := func(e kmutex.Event) {
		t.Helper()
		var err error
		if fx, err = m.Step(&e); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(from kmutex.Node, msg kmutex.Message) {
		t.Helper()
		msg.Epoch = 1
		do(kmutex.Event{Kind: kmutex.EventReceive, From: from, Message: &msg})
	}
	local := func(kind kmutex.EventKind, r kmutex.Request) { t.Helper(); do(kmutex.Event{Kind: kind, Request: r}) }

	do(kmutex.Event{Kind: kmutex.EventInstall, Install: kmutex.Genesis(kmutex.EpochChange{Epoch: 1, K: 1, Home: 1}, 2)})
	local(kmutex.EventAcquire, 1)
	receive(3, kmutex.Message{Kind: kmutex.KindRequest, Origin: 3, Batch: 7})
	local(kmutex.EventAskDue, 0)
	local(kmutex.EventAcquire, 2)
	receive(3, kmutex.Message{Kind: kmutex.KindRequest, Origin: 3, Batch: 8}) // the line: 1.1, 2.1, 3.7, 2.2, 3.8
	receive(1, kmutex.Message{Kind: kmutex.KindOffer, Batch: 1, Origin: 1, Other: 1})
	receive(3, kmutex.Message{Kind: kmutex.KindSkip, Batch: 1, Number: 7, Origin: 2, Other: 2})
	for r := range kmutex.Request(2) {
		local(kmutex.EventCancel, r+1)
		local(kmutex.EventRetryDue, 0)
	}
	receive(4, kmutex.Message{Kind: kmutex.KindOffer, Batch: 2, Origin: 4, Other: 1, Changes: 3})
	receive(4, kmutex.Message{Kind: kmutex.KindOffer, Batch: 2})
	if batches := m.State().Batches; len(batches) != 1 || !batches[0].Leaves {
		t.Fatalf("%+v are left", batches)
	}
	receive(5, kmutex.Message{Kind: kmutex.KindOffer, Batch: 1, Origin: 5, Other: 1, Free: kmutex.NewTokenSet(1)})
	if len(fx.Messages) != 1 || fx.Messages[0].To != 1 || fx.Messages[0].Message.Kind != kmutex.KindTokens {
		t.Errorf("it sends %v", fx.Messages)
	}
}
