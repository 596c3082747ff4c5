package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/kgate/kgate/proxy/tcpstate"
)

// sweepInterval is how often kept connections are looked at.
const sweepInterval = 5 * time.Second

// choose returns a connection for a request: a kept one unless fresh, or one that
// it dials. One for an upgrade speaks HTTP/1.1.
func (c *Client) choose(ctx context.Context, upgrade, fresh bool) (over exchanger, reused bool, err error) {
	for {
		standing := c.endLapsed()
		if standing == 0 {
			return nil, false, ErrLapsed
		}
		if !fresh {
			if over := c.kept(upgrade); over != nil {
				return over, true, nil
			}
		}
		over, err := c.dial(ctx, standing, upgrade)
		if over != nil || err != nil {
			return over, false, err
		}
		fresh = false // another request has dialled a connection that can be shared
	}
}

// EndLapsed closes all connections if the standing under which they were made is
// over. When it returns they are closed.
func (c *Client) EndLapsed() { c.endLapsed() }

// endLapsed does what EndLapsed does, and returns the current standing.
func (c *Client) endLapsed() uint64 {
	c.mu.Lock()
	standing := c.cfg.Standing()
	same := standing == c.standing
	c.mu.Unlock()
	if same {
		return standing
	}
	c.ending.Lock() // others wait until they are closed, too
	defer c.ending.Unlock()
	c.mu.Lock()
	var lapsed []*conn
	if standing = c.cfg.Standing(); standing != c.standing {
		lapsed = slices.Collect(maps.Keys(c.conns))
		c.idle, c.streams = nil, nil
	}
	c.mu.Unlock()
	for _, old := range lapsed {
		old.reset()
	}
	c.mu.Lock()
	c.standing = standing
	c.mu.Unlock()
	return standing
}

// kept returns a connection that can take a request, nil if there is none.
func (c *Client) kept(upgrade bool) exchanger {
	for {
		c.mu.Lock()
		c.followLocked()
		for _, shared := range c.streams {
			if !upgrade && shared.begin() {
				c.mu.Unlock()
				return shared
			}
		}
		last := len(c.idle) - 1
		if last < 0 {
			c.mu.Unlock()
			return nil
		}
		h := c.idle[last]
		c.idle[last] = nil
		c.idle = c.idle[:last]
		c.mu.Unlock()
		if !c.expired(h) {
			h.reused = true
			return h
		}
		h.hangUp()
	}
}

// keep takes a connection back that can be used again.
func (c *Client) keep(h *http1Conn) {
	if c.takesBack(h) {
		return
	}
	if h.stream == net.Conn(h.raw) {
		h.hangUp()
		return
	}
	go h.hangUp() // TLS may take its time to say goodbye
}

// takesBack reports whether a connection is kept, or closed already.
func (c *Client) takesBack(h *http1Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.conns[h.raw]; !open {
		return true
	}
	if c.retired || c.movedLocked(h.raw) || h.unsure || h.raw.narrow {
		return false
	}
	h.since = time.Now()
	c.idle = append(c.idle, h)
	if c.sweeper == nil {
		c.sweeper = time.AfterFunc(c.sweepAfter(), c.sweep)
	}
	return true
}

// expired reports whether a connection has been kept unused for too long.
func (c *Client) expired(h *http1Conn) bool {
	return c.cfg.IdleTimeout > 0 && time.Since(h.since) >= c.cfg.IdleTimeout
}

func (c *Client) sweepAfter() time.Duration {
	if c.cfg.IdleTimeout > 0 {
		return min(sweepInterval, c.cfg.IdleTimeout)
	}
	return sweepInterval
}

// sweep closes connections that were unused too long, or that the server has
// closed.
func (c *Client) sweep() {
	c.mu.Lock()
	var drop []*http1Conn
	c.idle = slices.DeleteFunc(c.idle, func(h *http1Conn) bool {
		if c.expired(h) || h.isStale() {
			drop = append(drop, h)
			return true
		}
		return false
	})
	if len(c.idle) > 0 {
		c.sweeper.Reset(c.sweepAfter())
	} else {
		c.sweeper = nil
	}
	c.mu.Unlock()
	for _, h := range drop {
		h.hangUp()
	}
}

// forget removes a closed connection from the lists.
func (c *Client) forget(gone *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, gone)
	c.streams = slices.DeleteFunc(c.streams, func(h *http2) bool {
		if h.raw == gone {
			h.notify()
			return true
		}
		return false
	})
	c.idle = slices.DeleteFunc(c.idle, func(h *http1Conn) bool { return h.raw == gone })
}

// CloseIdle closes the connections that no request uses, and each of the others when
// its last request has ended. It is for a Client that gets no new requests.
func (c *Client) CloseIdle() {
	c.mu.Lock()
	c.retired = true
	idle := c.idle
	c.idle = nil
	if c.sweeper != nil {
		c.sweeper.Stop()
		c.sweeper = nil
	}
	shared := slices.Clone(c.streams)
	c.mu.Unlock()
	for _, h := range idle {
		h.hangUp()
	}
	for _, h := range shared {
		h.leave()
	}
}

// Open returns how many connections are open.
func (c *Client) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns)
}

// sharedDial is a dial that several requests wait for.
type sharedDial struct {
	done chan struct{}
	err  error // set before done is closed
}

// dial makes a connection. If the server speaks HTTP/2, one dial at a time serves
// all that wait: for the others dial returns neither a connection nor an error, and
// they look again. Upgrades share nothing.
func (c *Client) dial(ctx context.Context, standing uint64, upgrade bool) (exchanger, error) {
	c.mu.Lock()
	if upgrade || !c.speaksH2 {
		onlyHTTP1 := upgrade && len(c.streams) > 0
		c.mu.Unlock()
		over, err := c.connect(ctx, standing, onlyHTTP1)
		if shared, ok := over.(*http2); ok && upgrade {
			shared.unused()
			return c.connect(ctx, standing, true)
		}
		return over, err
	}
	if other := c.sharing; other != nil {
		c.mu.Unlock()
		select {
		case <-other.done:
			return nil, other.err
		case <-ctx.Done():
			return nil, cause(ctx)
		}
	}
	mine := &sharedDial{done: make(chan struct{})}
	c.sharing = mine
	c.mu.Unlock()
	over, err := c.connect(ctx, standing, false)
	if _, ok := err.(*DialError); ok { // as connect returns it; others failed for the request's sake
		mine.err = err
	}
	c.mu.Lock()
	c.sharing = nil
	c.mu.Unlock()
	close(mine.done)
	return over, err
}

// connect dials, does the TLS handshake, and starts the protocol that the server speaks.
// OnlyHTTP1 is for a server that has just chosen HTTP/2.
func (c *Client) connect(ctx context.Context, standing uint64, onlyHTTP1 bool) (exchanger, error) {
	began := ctx
	if c.cfg.DialTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.DialTimeout)
		defer cancel()
	}
	failed := func(err error) (exchanger, error) { return nil, dialError(began, err) }
	raw, err := c.open(ctx, standing)
	if err != nil {
		return failed(err)
	}
	stream, protocol, speaksH2 := net.Conn(raw), "", c.cfg.Scheme == "h2c"
	if c.cfg.Scheme == "https" {
		secure := tls.Client(raw, c.tlsConfig(onlyHTTP1))
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			if onlyHTTP1 {
				err = &UpgradeError{onlyHTTP2, err}
			}
			return failed(err)
		}
		stream, protocol = secure, secure.ConnectionState().NegotiatedProtocol
		speaksH2 = protocol == "h2"
		if !onlyHTTP1 {
			c.mu.Lock()
			c.speaksH2 = speaksH2
			c.mu.Unlock()
		}
	}
	if !speaksH2 {
		h := newHTTP1(&c.cfg, raw, stream, c.keep)
		h.unsure = onlyHTTP1 && protocol == ""
		return h, nil
	}
	shared, err := newHTTP2(ctx, c.h2, c.cfg.Address, raw, stream)
	if err != nil {
		_ = raw.Close()
		return failed(err)
	}
	c.share(shared)
	return shared, nil
}

// share lets other requests use a connection, too.
func (c *Client) share(h *http2) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.conns[h.raw]; !open {
		return
	}
	if c.retired || c.movedLocked(h.raw) {
		h.leave() // once its first request has ended
		return
	}
	c.streams = append(c.streams, h)
}

// open makes a TCP connection under a standing.
func (c *Client) open(ctx context.Context, standing uint64) (*conn, error) {
	tcp, err := c.cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	raw := newConn(tcp, c.cfg.Standing, standing, c.forget)
	tcpstate.ResetOnClose(tcp, true)
	if !c.add(raw) {
		raw.reset()
		return nil, ErrLapsed
	}
	return raw, nil
}

// dialError returns why no connection was made: the end of the caller's context, or
// err.
func dialError(caller context.Context, err error) error {
	var upgrade *UpgradeError
	switch {
	case errors.Is(err, ErrLapsed):
		return ErrLapsed
	case caller.Err() != nil:
		return cause(caller)
	case errors.As(err, &upgrade):
		return upgrade
	default:
		return &DialError{err}
	}
}

// add adds a connection to the list, unless its standing is over.
func (c *Client) add(raw *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.standing != raw.standing || c.cfg.Standing() != raw.standing {
		return false
	}
	c.conns[raw] = struct{}{}
	return true
}

// tlsConfig returns the configuration of a connection.
func (c *Client) tlsConfig(onlyHTTP1 bool) *tls.Config {
	cfg := c.cfg.TLS.Clone()
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(c.cfg.Address)
	}
	switch {
	case onlyHTTP1:
		cfg.NextProtos = []string{"http/1.1"}
	case len(cfg.NextProtos) == 0:
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	return cfg
}
