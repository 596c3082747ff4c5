package downstream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/kgate/kgate/proxy/tcpstate"
)

// listener makes a Conn of each connection that one listener of a server accepts, and
// counts it.
type listener struct {
	net.Listener
	raw     net.Listener // below the PROXY protocol
	limiter *limiter
	clients *clients
	watch   *disconnectWatch
	// headerTime bounds what a client has to say first.
	headerTime time.Duration
	stallTime  time.Duration // see Conn.StallTimeout
	base       context.Context

	closed bool // guarded by limiter.mu
}

// speakProxy returns l with the PROXY protocol on connections from the prefixes: they must
// say in a header whom they come from, within headerTime. What others send of that kind is
// not HTTP, and is answered so.
func speakProxy(l net.Listener, from []netip.Prefix, headerTime time.Duration) net.Listener {
	if len(from) == 0 {
		return l
	}
	return &proxyproto.Listener{Listener: l, ReadHeaderTimeout: headerTime, ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
		addr := addrOf(o.Upstream)
		if slices.ContainsFunc(from, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return proxyproto.REQUIRE, nil
		}
		return proxyproto.SKIP, nil
	}}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	client := &Conn{Conn: conn, raw: conn, listener: l}
	client.entry.conn = client
	if spoken, ok := conn.(*proxyproto.Conn); ok {
		client.raw = spoken.Raw()
	}
	client.entry.from = originOf(client.raw)
	l.limiter.enter(&client.entry, l)
	l.clients.add(client)
	err = l.watch.add(client)
	client.acks = tcpstate.TellsAcked(client.raw)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		if suppressed, ok := l.limiter.once.Allow("watch"); ok { // it is served all the same
			l.limiter.logger.Warn("a connection cannot be watched: it may be noticed late when its client leaves",
				slog.Any("error", err), slog.Int("suppressed", suppressed))
		}
	}
	return client, nil
}

// Close implements net.Listener. It may be called again.
func (l *listener) Close() error {
	l.limiter.mu.Lock()
	closed := l.closed
	l.closed = true
	l.limiter.changed.Broadcast()
	l.limiter.mu.Unlock()
	if closed {
		return nil
	}
	return l.Listener.Close()
}
