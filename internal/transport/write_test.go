package transport

import (
	"crypto/tls"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Who sends over a quiet link writes itself, but does not wait when the other end reads
// no more. Everything arrives in order when it does again.
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
				for i := 1; i <= n; i++ { // more in all than the kernel takes
					time.Sleep(2 * quietFor)
					m := kmutex.Message{Kind: kmutex.KindBaton, Epoch: 1, Number: uint64(i), Tails: make([]kmutex.Seat, maxTokens)}
					for j := range m.Tails {
						m.Tails[j] = kmutex.Seat{Node: kmutex.Node(j + 1), Serial: 1 << 40}
					}
					failed = errors.Join(failed, t1.Send(2, "downloads", m))
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
