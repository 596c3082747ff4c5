package gateway

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// alone is the cluster as a gateway sees it that is its only member.
type alone struct {
	view *membership.View
}

func (a alone) View() *membership.View { return a.view }
func (a alone) Standing() membership.Standing {
	return membership.Standing{Node: 1, Until: time.Now().Add(time.Hour)}
}
func (alone) Changed() <-chan struct{}                                       { return nil }
func (alone) Rejoin()                                                        {}
func (alone) Recover(context.Context, string, uint64, membership.Why) error  { return nil }
func (alone) TicketsMark() string                                            { return "" }
func (alone) SetTicketsMark(string) error                                    { return nil }
func (alone) UseTickets(context.Context, string, time.Duration) error        { return nil }
func (alone) SetPeers(kmutex.Node, []transport.Peer) []transport.Unsent      { return nil }
func (alone) Send(kmutex.Node, string, kmutex.Message) error                 { return nil }
func (alone) SendNow(kmutex.Node, string, kmutex.Message) error              { return nil }
func (alone) SendPayload(context.Context, kmutex.Node, string, []byte) error { return nil }
func (alone) Call(context.Context, transport.To, transport.Question) ([]byte, error) {
	return nil, transport.ErrLinkDown
}

func (alone) SendDatagram(transport.To, wire.Channel, []byte) error { return transport.ErrLinkDown }
func (alone) MeanRTT() time.Duration                                { return 0 }

// newAlone returns a gateway without others, with one pool.
func newAlone(tb testing.TB, k int, binding admission.Binding) *Gateway {
	tb.Helper()
	a := alone{view: &membership.View{
		Number: 1, Members: []membership.Member{{Node: 1, Name: "gw-1"}},
		Pools: []membership.Pool{{Name: testPool, K: k, Binding: binding, Epoch: 1, Began: 1, Home: 1}},
	}}
	g := New(Config{Observer: noObserver{}})
	g.Start(a, a, nil)
	tb.Cleanup(func() {
		if err := g.Close(); err != nil {
			tb.Error(err)
		}
	})
	for g.pool(testPool) == nil {
		time.Sleep(time.Millisecond)
	}
	return g
}

// An admission that needs no message: a request that is let in at once, and its
// release.
func BenchmarkAdmission(b *testing.B) {
	for _, binding := range []admission.Binding{admission.BindingLate, admission.BindingEarly} {
		b.Run(string(binding), func(b *testing.B) {
			g := newAlone(b, 8, binding)
			b.ReportAllocs()
			for b.Loop() {
				s, err := g.Acquire(b.Context(), admission.Request{Pool: testPool, Wait: -1})
				if err != nil {
					b.Fatal(err)
				}
				s.Release()
			}
		})
	}
}

// Requests that wait for one another: 64 at a time for 8 tokens, on one gateway.
func BenchmarkLine(b *testing.B) {
	g := newAlone(b, 8, admission.BindingLate)
	b.ReportAllocs()
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s, err := g.Acquire(b.Context(), admission.Request{Pool: testPool, Wait: -1})
			if err != nil {
				b.Error(err)
				return
			}
			runtime.Gosched()
			s.Release()
		}
	})
}
