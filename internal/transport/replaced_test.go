package transport

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// rawCall is a call with a short body, as bytes.
func rawCall(id uint64, name string) []byte {
	const kind = 3
	b := append([]byte{0, 0, kind}, binary.AppendUvarint(nil, id)...)
	b = append(append(b, byte(len(name))), name...)
	return rawSized(append(b, 0))
}

func rawSized(b []byte) []byte {
	binary.BigEndian.PutUint16(b, uint16(len(b)-2))
	return b
}

// A message and a call come in one read, and the connection ends while the message is delivered: the call
// that is handed on then does not go on.
func TestWhatIsHandedOnAfterTheEnd(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var answering atomic.Int64
	victim := listen(t, Config{
		Name: "gw-3",
		Handler: deliverFunc(func(kmutex.Node, string, kmutex.Message) error {
			close(began)
			<-goOn
			return nil
		}),
		Answer: func(ctx context.Context, _ Caller, _ string, _ []byte) ([]byte, error) {
			answering.Add(1)
			defer answering.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	setPeers(victim, 3, []Peer{{Node: 2}})
	one := rawLink(t, victim)
	if _, err := one.Write(append(rawText(t, 1), rawCall(3, callName+"x")...)); err != nil {
		t.Fatal(err)
	}
	wait(t, "the message", began)
	rawLinkAfter(t, victim, 1)
	closed(t, one)
	close(goOn)
	eventually(t, "no call goes on", func() bool { return answering.Load() == 0 })
}

// For the race detector: a connection is replaced while what it brought is handed on.
func TestReplacedWhileAsked(t *testing.T) {
	victim := listen(t, Config{
		Name:   "gw-3",
		Answer: func(_ context.Context, _ Caller, _ string, b []byte) ([]byte, error) { return b, nil },
	})
	setPeers(victim, 3, []Peer{{Node: 2}})
	for range 30 {
		c := plain(t, victim)
		_, _ = c.Write(rawHello())
		var say []byte
		for n := range uint64(60) {
			say = append(say, rawCall(2*n+1, callName+"x")...)
		}
		_, _ = c.Write(say)
		time.Sleep(time.Millisecond)
	}
}

// Close returns though a peer connects again and again while it runs.
func TestCloseWhileReconnecting(t *testing.T) {
	for round := range 100 {
		victim, err := Listen(Config{Name: "gw-3", Listen: "127.0.0.1:0", Handler: discard})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var number atomic.Uint64
		conns := make(chan net.Conn, 120)
		for range 12 {
			wg.Go(func() {
				for range 10 {
					c, err := net.Dial("tcp", victim.Addr().String())
					if err != nil {
						return
					}
					conns <- c
					_, _ = c.Write(opening(wire.Hello{Name: "gw-2", Boot: "b", To: "gw-3", Number: number.Add(1)}))
				}
			})
		}
		time.Sleep(time.Duration(1+round%4) * time.Millisecond)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = victim.Close()
		}()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Errorf("round %d: Close waits for a session that nobody ends", round)
		}
		wg.Wait()
		for close(conns); len(conns) > 0; {
			_ = (<-conns).Close()
		}
		<-done
		if t.Failed() {
			return
		}
	}
}

// While one payload is being taken, those of connections that have ended are not kept.
func TestPayloadsOfEndedConnections(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		began, goOn := make(chan struct{}, 1), make(chan struct{})
		victim := listen(t, Config{Name: "gw-2", Receive: func(kmutex.Node, string, []byte) error {
			began <- struct{}{}
			<-goOn
			return nil
		}})
		friend := listen(t, Config{Name: "gw-1"})
		join(friend, victim)
		waitUp(t, victim, friend)
		defer close(goOn)
		kept := func() (waiting, bytes int) {
			p := victim.use("gw-1")
			defer victim.leave(p)
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.questions.payloads), p.questions.bytes
		}
		p := friend.use("gw-2")
		defer friend.leave(p)
		const size = 1 << 20
		for i := range 4 {
			var wg sync.WaitGroup
			wg.Go(func() { _ = friend.SendPayload(within(t), 2, "log", make([]byte, size)) })
			if i == 0 {
				<-began
			} else {
				eventually(t, "it waits", func() bool { waiting, _ := kept(); return waiting == 1 })
			}
			s, _, _ := p.current()
			s.fail(errReplaced)
			wg.Wait()
			eventually(t, "another connection", func() bool {
				now, open, _ := p.current()
				waiting, bytes := kept()
				return open && now != s && waiting == 0 && bytes == size && statesOf(friend)[0].Up
			})
		}
	})
}

// Calls whose answers take long are bounded over all connections, also for a gateway that is in no view.
func TestCallsOfEndedConnections(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		var answering atomic.Int64
		victim := listen(t, Config{Name: "gw-3", Answer: func(context.Context, Caller, string, []byte) ([]byte, error) {
			answering.Add(1)
			defer answering.Add(-1)
			<-goOn
			return nil, nil
		}})
		defer close(goOn)
		const places = int64(wire.MaxQuestions)
		for n := range uint64(3) {
			c := plain(t, victim)
			_, _ = c.Write(opening(wire.Hello{Name: "x-1", Boot: "b", To: "gw-3", Number: n + 1}))
			var say []byte
			for i := range uint64(200) {
				say = append(say, rawCall(2*i+1, callName+"x")...)
			}
			_, _ = c.Write(say)
			want := min(200*(int64(n)+1), places)
			eventually(t, "they are asked", func() bool { return answering.Load() == want })
			_ = c.Close()
		}
		synctest.Wait() // more would have come
		if n := answering.Load(); n != places {
			t.Errorf("%d calls of one gateway are being answered, not %d", n, places)
		}
	})
}
