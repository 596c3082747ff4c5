package transport

import (
	"crypto/tls"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// SendNow writes, but does not wait when the other end reads no more. Everything arrives in
// order when it does again.
func TestSenderDoesNotWait(t *testing.T) {
	t.Parallel()
	pki := newPKI(t)
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := func() *tls.Config {
				if !secure {
					return nil
				}
				return pki.peer(t)
			}
			const n = 20
			stopped, at2 := make(chan struct{}), newInOrder(n)
			resume := sync.OnceFunc(func() { close(stopped) })
			defer resume()
			const ping = time.Minute // nothing else writes
			t1 := listen(t, Config{TLS: config(), PingInterval: ping})
			t2 := listen(t, Config{TLS: config(), PingInterval: ping, Handler: deliverFunc(func(from kmutex.Node, pool string, m kmutex.Message) error {
				<-stopped
				return at2.Deliver(from, pool, m)
			})})
			join(t1, t2)
			waitUp(t, t1, t2)
			sent := make(chan struct{})
			var failed error
			go func() {
				defer close(sent)
				for i := 1; i <= n; i++ { // more in all than fits the window
					m := kmutex.Message{Kind: kmutex.KindBaton, Epoch: 1, Number: uint64(i), Tails: make([]kmutex.Seat, maxTokens/8)}
					for j := range m.Tails {
						m.Tails[j] = kmutex.Seat{Node: kmutex.Node(j + 1), Serial: 1 << 40}
					}
					failed = errors.Join(failed, t1.SendNow(2, "downloads", m))
				}
			}()
			wait(t, "all sends", sent)
			if resume(); failed != nil {
				t.Fatal(failed)
			}
			wait(t, "all messages", at2.done)
			at2.check(t, "at 2")
		})
	}
}

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
