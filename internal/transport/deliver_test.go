package transport

import (
	"context"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/kmutex"
)

// While a message is delivered that takes long, pings and calls are answered, also over a connection that
// follows, and later messages come in their order.
func TestSlowDeliver(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		const blocked, last = 3, 2000
		began, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var got uint64
		const ping = 200 * time.Millisecond
		slow := listen(t, Config{
			PingInterval: ping,
			Handler: deliverFunc(func(_ kmutex.Node, _ string, m kmutex.Message) error {
				if got++; m.Number != got {
					t.Errorf("message %d, want %d", m.Number, got)
				}
				switch got {
				case blocked:
					close(began)
					<-goOn
				case last:
					close(done)
				}
				return nil
			}),
			Answer: func(_ context.Context, _ Caller, _ string, body []byte) ([]byte, error) { return body, nil },
		})
		fast := listen(t, Config{PingInterval: ping})
		join(slow, fast)
		waitUp(t, slow, fast)
		send := func(from, to uint64) {
			for n := from; n <= to; n++ {
				if err := fast.Send(1, "p", numbered(int(n))); err != nil {
					t.Fatal(err)
				}
			}
		}
		call := func() {
			asked := time.Now()
			answer, err := fast.Call(within(t), to(slow), Question{Name: "x", Body: []byte("y")})
			if took := time.Since(asked); err != nil || string(answer) != "y" || took > ping {
				t.Errorf("%q, %v after %v", answer, err, took)
			}
		}
		send(1, blocked)
		wait(t, "it blocks", began)
		call()
		time.Sleep(2 * ping)
		if s := statesOf(fast)[0]; s.Reconnects != 0 || !s.Up {
			t.Errorf("pings were not answered: %+v", s)
		}
		send(blocked+1, last/2)
		time.Sleep(2 * ping) // nothing is acknowledged for so long that the connection ends
		if s := statesOf(fast)[0]; s.Reconnects != 1 {
			t.Errorf("the connection has not ended: %+v", s)
		}
		call()
		send(last/2+1, last)
		close(goOn)
		wait(t, "all messages", done)
	})
}
