package transport

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// link is a link between this incarnation and another one. Its process's lock guards it.
type link struct {
	p    *process
	node kmutex.Node
	wire *wire.Link
	// dropped: no message of it is delivered any more.
	dropped atomic.Bool
	// rtt is the smoothed round-trip time in nanoseconds, 0 while it is unknown or the link is
	// down. It is written under the lock.
	rtt     atomic.Int64
	waiters []waiter
	// up: the connection is proved, and both ends serve the link. Since is when up last
	// changed, and lastErr why it went down.
	up       bool
	since    time.Time
	connects int
	lastErr  error
	broken   error // the ends disagree on what was received
}

// waiter is a Flush that waits until number is acknowledged.
type waiter struct {
	number uint64
	done   chan struct{}
}

func newLink(p *process, self kmutex.Node, peer Peer) *link {
	return &link{p: p, node: peer.Node, since: time.Now(), wire: &wire.Link{
		Self: uint64(self), Peer: uint64(peer.Node),
		MaxMessages: p.t.config.queueMessages, MaxBytes: p.t.config.queueBytes,
	}}
}

// release ends the waits for what is acknowledged now. It is called under the lock; l may be nil.
func (l *link) release() {
	if l == nil {
		return
	}
	l.waiters = slices.DeleteFunc(l.waiters, func(w waiter) bool {
		if w.number > l.wire.Acked() {
			return false
		}
		close(w.done)
		return true
	})
	if len(l.waiters) > 0 && l.p.session != nil {
		l.p.session.wire.Ping() // for another acknowledgement
	}
}

// flush waits until all that is queued now is acknowledged. It returns false if ctx ends
// first.
func (l *link) flush(ctx context.Context) bool {
	done := l.flushed()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.waiters = slices.DeleteFunc(l.waiters, func(w waiter) bool { return w.done == done })
	return false
}

// flushed returns a channel that is closed when all that is queued now is acknowledged.
func (l *link) flushed() chan struct{} {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	w := waiter{number: l.wire.Last(), done: make(chan struct{})}
	if l.dropped.Load() || l.wire.Queued() == 0 {
		close(w.done)
		return w.done
	}
	l.waiters = append(l.waiters, w)
	if s := l.p.session; s != nil {
		s.wire.Ping() // the answer comes with an acknowledgement
		s.wakeWriter()
	}
	return w.done
}

func (l *link) status() LinkStatus {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	return LinkStatus{Node: l.node, Name: p.name, Up: l.up, RTT: time.Duration(l.rtt.Load())}
}

// attrs says which link it is, in logs.
func (l *link) attrs() []slog.Attr {
	return []slog.Attr{slog.Uint64("peer_node", uint64(l.node)), slog.String("peer", l.p.name), slog.String("addr", l.p.addr)}
}
