package transport

import (
	"log/slog"
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
	rtt atomic.Int64
	// up: the connection is proved, and both ends serve the link. Since is when up last
	// changed, and lastErr why it went down.
	up       bool
	since    time.Time
	connects int
	lastErr  error
	broken   error // the ends disagree on what was received
}

func newLink(p *process, self kmutex.Node, peer Peer) *link {
	return &link{p: p, node: peer.Node, since: time.Now(), wire: &wire.Link{
		Self: uint64(self), Peer: uint64(peer.Node),
		MaxMessages: p.t.config.queueMessages, MaxBytes: p.t.config.queueBytes,
	}}
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
