package transport

import (
	"context"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// While a message is delivered that takes long, pings and calls are answered, also over a connection that
// follows, and later messages come in their order.
func TestSlowDeliver(t *testing.T) {
	const blocked, last = 3, 2000
	began, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var got uint64
	slow := listen(t, Config{
		PingInterval: 200 * time.Millisecond,
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
	fast := listen(t, Config{PingInterval: 200 * time.Millisecond})
	join(slow, fast)
	waitUp(t, slow, fast)
	send := func(from, to uint64) {
		for n := from; n <= to; n++ {
			if err := fast.Send(1, "p", numbered(int(n))); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(1, blocked)
	wait(t, "it blocks", began)
	to := To{Name: nameOf(1), Addr: slow.Addr().String()}
	for range 3 {
		if answer, err := fast.Call(within(t), to, Question{Name: "x", Body: []byte("y")}); err != nil || string(answer) != "y" {
			t.Errorf("%q, %v", answer, err)
		}
	}
	send(blocked+1, last/2)
	for _, p := range slow.all() { // the connection breaks
		if s, _, _ := p.current(); s != nil {
			s.fail(ErrLinkDown)
		}
	}
	eventually(t, "it is there again", func() bool {
		_, err := fast.Call(within(t), to, Question{Name: "x"})
		return err == nil
	})
	send(last/2+1, last)
	close(goOn)
	wait(t, "all messages", done)
}
