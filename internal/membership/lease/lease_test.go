package lease

import (
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

const ms = time.Millisecond

var terms = Terms{Lease: 3000 * ms, Bound: 150 * ms}

func TestHolderCountsFromSending(t *testing.T) {
	h := NewHolder(terms, 7, 100*ms)
	if _, ok := h.Until(); ok || h.valid(100*ms) || h.Over(1000*ms) || h.Due() != 100*ms {
		t.Error("a holder that was never granted anything has no lease, and has lost none")
	}
	r := h.Send(200 * ms)
	if r != (Renewal{Node: 7, Tag: 1}) || h.Due() != 700*ms {
		t.Errorf("%+v, next at %v", r, h.Due())
	}
	if !h.Granted(r, 600*ms) {
		t.Error("not granted")
	}
	if until, ok := h.Until(); !ok || until != 2900*ms || !h.valid(2899*ms) || h.valid(2900*ms) {
		t.Errorf("until %v, %v", until, ok)
	}
}

func TestWhatCountsNothing(t *testing.T) {
	h := NewHolder(terms, 7, 0)
	old := h.Send(0)
	for range outstanding - 1 {
		h.Send(100 * ms)
	}
	r := h.Send(500 * ms)
	for name, other := range map[string]Renewal{"an older one": old, "another incarnation's": {Node: 6, Tag: r.Tag}, "one never sent": {Node: 7, Tag: 9}} {
		if h.Granted(other, 600*ms) {
			t.Errorf("%s counts", name)
		}
	}
	if h.Granted(r, 3300*ms) || h.Over(3300*ms) {
		t.Error("a first answer that is too late gives no lease, and takes none")
	}
	if !h.Granted(h.Send(3300*ms), 3310*ms) {
		t.Error("the next one counts")
	}
}

// Each answer counts from when its own renewal was sent, whichever comes first.
func TestAnswersInAnyOrder(t *testing.T) {
	h := NewHolder(terms, 7, 0)
	first, second := h.Send(0), h.Send(1000*ms)
	if !h.Granted(first, 1200*ms) {
		t.Error("the first one does not count")
	}
	if until, _ := h.Until(); until != 2700*ms {
		t.Errorf("until %v after the first", until)
	}
	if !h.Granted(second, 1300*ms) || h.Granted(first, 1400*ms) {
		t.Error("the second makes the lease longer, the first once more does not")
	}
	if until, _ := h.Until(); until != 3700*ms {
		t.Errorf("until %v after both", until)
	}
}

func TestLapsedForEver(t *testing.T) {
	h := NewHolder(terms, 7, 0)
	h.Granted(h.Send(0), 1*ms)
	late := h.Send(2600 * ms)
	if h.Granted(late, 2700*ms) || h.valid(2701*ms) || !h.Over(2701*ms) {
		t.Error("an answer after the end revives the lease")
	}
	if h.Granted(h.Send(2800*ms), 2801*ms) {
		t.Error("a renewal after the end revives the lease")
	}
}

// Who gets no lease, since no answer arrives, does not wait for ever.
func TestNoLease(t *testing.T) {
	h := NewHolder(terms, 7, 100*ms)
	r := h.Send(100 * ms)
	if end := 100*ms + 2*terms.Lease; h.Over(end-1) || !h.Over(end) || h.Granted(r, end+1) {
		t.Error("it is not over after the time of two leases, or is before")
	}
}

// leads returns a grantor with members 1 to 3 that leads since 1 s.
func leads() *Grantor {
	g := NewGrantor(terms, 5, 1000*ms)
	g.Follow([]kmutex.Node{1, 2, 3}, nil)
	return g
}

// A round answers what came before it began, and what the rounds before it have not.
func TestRounds(t *testing.T) {
	g := leads()
	if g.Waiting() || g.Receive(Renewal{Node: 9, Tag: 1}, 1100*ms) || g.Waiting() {
		t.Error("a stranger's renewal is taken")
	}
	renew := func(node kmutex.Node) Renewal {
		r := Renewal{Node: node, Tag: 1}
		g.Receive(r, 1100*ms)
		return r
	}
	one := renew(1)
	first := g.Ask()
	two := renew(2) // too late for this round
	if granted := g.Confirm(first); !slices.Equal(granted, []Renewal{one}) || !g.Waiting() {
		t.Errorf("granted %v", granted)
	}
	g.Ask()
	three := renew(3)
	third := g.Ask()
	if granted := g.Confirm(third); !slices.Equal(granted, []Renewal{two, three}) || g.Waiting() {
		t.Errorf("granted %v", granted)
	}
	if again := g.Confirm(third); again != nil {
		t.Errorf("granted %v twice", again)
	}
}

func TestExpired(t *testing.T) {
	g := leads()
	g.Receive(Renewal{Node: 1, Tag: 1}, 2000*ms)
	g.Receive(Renewal{Node: 3, Tag: 1}, 2000*ms)
	n := g.Ask()
	g.Follow([]kmutex.Node{2}, []kmutex.Node{1, 3, 4}) // 3 is lost while the round is out
	g.granted[1] = 2000 * ms                           // by a round before
	if granted := g.Confirm(n); granted != nil {
		t.Errorf("lost ones are granted %v", granted)
	}
	for _, tt := range []struct {
		node kmutex.Node
		at   time.Duration
		want bool
	}{
		{4, 4449 * ms, false}, // its lease is a predecessor's: one whole wait of the leader
		{4, 4450 * ms, true},
		{3, 4449 * ms, false}, // never granted by this leader
		{3, 4450 * ms, true},
		{1, 5449 * ms, false}, // from receiving
		{1, 5450 * ms, true},
		{2, time.Hour, false}, // a member
		{9, time.Hour, false}, // nobody knows it
	} {
		if got := g.Expired(tt.node, tt.at); got != tt.want {
			t.Errorf("node %d at %v: expired %v, want %v", tt.node, tt.at, got, tt.want)
		}
	}
}

// A leader that leads the next term too has nothing to wait for: nobody else can
// have granted anything. With a term in between it waits like any other.
func TestAgain(t *testing.T) {
	g := NewGrantor(terms, 5, 0)
	g.Follow([]kmutex.Node{1, 2}, nil)
	if g.Again(5) != nil || g.Again(7) != nil {
		t.Error("led again in a term that is not the next")
	}
	again := g.Again(6)
	again.Follow([]kmutex.Node{1}, []kmutex.Node{2})
	if again.term != 6 || !again.Expired(2, 2*terms.Wait()) {
		t.Error("waits although nobody led in between")
	}
}

// valid reports that the incarnation may have requests in flight.
func (h *Holder) valid(now time.Duration) bool {
	until, ok := h.Until()
	return ok && now < until
}
