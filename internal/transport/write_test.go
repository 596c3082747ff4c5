package transport

import (
	"testing"
	"time"
)

// Who sends a message alone has written it when SendNow returns.
func TestSendNowWrites(t *testing.T) {
	t.Parallel()
	const ping = time.Hour // nothing else writes
	t1, t2 := listen(t, Config{PingInterval: ping}), listen(t, Config{PingInterval: ping})
	join(t1, t2)
	waitUp(t, t1, t2)
	eventually(t, "answers to the first pings", func() bool { return t1.MeanRTT() > 0 && t2.MeanRTT() > 0 })
	l := t1.peers.Load().links[2]
	atRest := func() bool {
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		return l.p.session.idle && !l.p.session.wire.Due()
	}
	eventually(t, "rest", atRest)
	for i := 1; i <= 100; i++ {
		if err := t1.SendNow(2, "downloads", numbered(i)); err != nil {
			t.Fatal(err)
		}
		if !atRest() {
			t.Fatalf("message %d is not written", i)
		}
	}
}
