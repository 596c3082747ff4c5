package gateway

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// TestTokenTellsWhereItWas: whoever has the token next is told of a sampled
// holder, at its own gateway and at others, by way of home too; and of no other.
func TestTokenTellsWhereItWas(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 3, 1, binding, time.Millisecond, PoolConfig{})
		all := f.all()
		before, earlier := all[0].hasSlot(t, strings.Repeat("a", spanSize)), strings.Repeat("a", spanSize)
		for i, span := range []string{"b", "c", "", "d", "e", "f"} {
			span = strings.Repeat(span, spanSize)
			next := make(chan *Slot)
			n := all[[]int{1, 2, 2, 0, 0, 1}[i]]
			go func() { next <- n.hasSlot(t, span) }()
			time.Sleep(100 * time.Millisecond) // virtual: it has its place
			synctest.Wait()
			before.Release()
			now := <-next
			if got := now.GrantInfo().After; got != earlier {
				t.Errorf("holder %d comes after %q, want %q", i, got, earlier)
			}
			before, earlier = now, span
		}
		before.Release()
		synctest.Wait()
		for _, n := range all {
			if p := n.pool(testPool); earlier == "" && len(p.spans) != 0 {
				t.Errorf("node %d keeps %v", n.self, p.spans)
			}
		}
	})
}

func (n *node) hasSlot(t *testing.T, span string) *Slot {
	s, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1, Span: span})
	if err != nil {
		t.Error(err)
		return new(Slot)
	}
	return s
}

// TestTag: what departs with a baton arrives, as much as a tag holds; the rest is
// forgotten, and so is what a peer makes up.
func TestTag(t *testing.T) {
	const k = 200
	here := make(spanLinks)
	for q := range kmutex.Token(k) {
		here[q] = strings.Repeat(string('a'+rune(q%26)), spanSize)
	}
	sent := maps.Clone(here)
	stays := kmutex.Token(7)
	free := kmutex.NewTokenSet(k)
	free.Remove(stays)
	m := kmutex.Message{Kind: kmutex.KindBaton, Free: free}
	here.depart(&m)
	if len(here) != 1 || here[stays] == "" || len(m.Tag) > transport.MaxTag {
		t.Errorf("%d spans stay, %d bytes go", len(here), len(m.Tag))
	}
	got := make(spanLinks)
	got.arrived(&m)
	if len(got) < 30 {
		t.Errorf("%d spans arrive", len(got))
	}
	for q, span := range got {
		if q == stays || span != sent[q] {
			t.Errorf("token %d comes from %q, want %q", q, span, sent[q])
		}
	}
	where := kmutex.Message{Kind: kmutex.KindLocate}
	here.depart(&where)
	if where.Tag != nil || len(here) != 1 {
		t.Error("a message without tokens takes spans along")
	}
}

// FuzzTag: whatever a peer sends, there is at most one span for each token.
func FuzzTag(f *testing.F) {
	m := kmutex.Message{Kind: kmutex.KindToken, Token: 3}
	spanLinks{3: strings.Repeat("x", spanSize)}.depart(&m)
	f.Add(m.Tag)
	f.Add(m.Tag[:len(m.Tag)-1])
	f.Add(bytes.Replace(m.Tag, []byte{3}, []byte{4}, 1)) // of a token that is not there
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, tag []byte) {
		got := make(spanLinks)
		got.arrived(&kmutex.Message{Tag: tag})
		for q, span := range got {
			if q < 0 || q >= kmutex.MaxK || len(span) != spanSize {
				t.Errorf("token %d comes from %q", q, span)
			}
		}
	})
}
