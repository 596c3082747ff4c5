package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
)

// A gateway that was stopped or cut off for longer than its lease may have
// requests in flight no more, and finds out late: between the check and the
// write it may have slept for minutes. So the check stands right before the
// write, at the connection. All slots of a gateway end together when its right
// to have any ends, so a connection need not know whose bytes it carries, and
// HTTP/1, HTTP/2, TLS and upgraded connections are all guarded alike.
//
// That right, the gateway's standing, may be lost and come back as another one.
// A connection belongs to the standing under which it was made, for good: a
// request of the old standing has no way to a connection of the new one.

// errLapsed is the error of what would have been sent without the standing.
var errLapsed = errors.New("proxy: this gateway may have no requests in flight any more")

// lane is an upstream's connections under one standing.
type lane struct {
	standing  uint64
	current   func() uint64 // Config.Standing
	transport *http.Transport

	mu    sync.Mutex
	conns map[*laneConn]struct{}
	ended bool
}

// newLane takes transport over and guards what it dials.
func newLane(standing uint64, current func() uint64, transport *http.Transport) *lane {
	l := &lane{standing: standing, current: current, transport: transport, conns: make(map[*laneConn]struct{})}
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.lapsed() {
			return nil, errLapsed
		}
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return l.add(c)
	}
	return l
}

func (l *lane) add(c net.Conn) (net.Conn, error) {
	guarded := &laneConn{Conn: c, lane: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		_ = c.Close()
		return nil, errLapsed
	}
	l.conns[guarded] = struct{}{}
	return guarded, nil
}

func (l *lane) lapsed() bool { return l.current() != l.standing }

// end closes every connection before it returns. What has not left the kernel
// yet is dropped, and a reset tells the upstream at once.
func (l *lane) end() {
	l.mu.Lock()
	conns := l.conns
	l.conns, l.ended = nil, true
	l.mu.Unlock()
	for c := range conns {
		if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Conn.Close()
	}
	l.transport.CloseIdleConnections()
}

// laneConn is a connection of a lane. It embeds the interface and not the TCP
// connection, whose ReadFrom would be a way around Write.
type laneConn struct {
	net.Conn
	lane *lane
}

// Write implements net.Conn. It sends nothing when the lane's standing is over.
func (c *laneConn) Write(p []byte) (int, error) {
	if c.lane.lapsed() {
		return 0, errLapsed
	}
	return c.Conn.Write(p)
}

// CloseWrite lets half-closed upgraded connections be.
func (c *laneConn) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite closes conn's sending side, if it can be closed alone.
func closeWrite(conn io.Writer) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close implements net.Conn.
func (c *laneConn) Close() error {
	c.lane.mu.Lock()
	delete(c.lane.conns, c)
	c.lane.mu.Unlock()
	return c.Conn.Close()
}

// lanes is the RoundTripper of a pool's upstream: the lane of the present
// standing.
type lanes struct {
	current func() uint64
	dial    func() *http.Transport // a transport for a new lane

	mu   sync.Mutex
	lane *lane // nil until the first request
}

var _ http.RoundTripper = (*lanes)(nil)

// RoundTrip implements http.RoundTripper. The order matters: a slot that is
// still valid after the lane was chosen was given under the lane's standing.
func (s *lanes) RoundTrip(req *http.Request) (*http.Response, error) {
	l, err := s.now()
	if err == nil {
		err = exchangeOf(req).hold.check()
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	res, err := l.transport.RoundTrip(req)
	if err != nil && anothersFault(req, err) {
		return l.transport.RoundTrip(req)
	}
	return res, err
}

// anothersFault reports whether a request failed because of the one that had its
// connection before, and may be sent again. net/http lends a connection out anew
// as soon as an answer without a body is there; when the request that the answer
// was for is cancelled just then, it is that connection which is closed.
func anothersFault(req *http.Request, err error) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		return false // the upstream may have acted on it
	}
	return (req.Body == nil || req.Body == http.NoBody) && req.Context().Err() == nil &&
		(errors.Is(err, context.Canceled) || errors.Is(err, io.ErrUnexpectedEOF))
}

// now returns the present standing's lane.
func (s *lanes) now() (*lane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	standing := s.current()
	switch {
	case standing == 0:
		return nil, errLapsed
	case s.lane == nil:
		s.lane = newLane(standing, s.current, s.dial())
	case s.lane.standing != standing:
		s.lane.end()
		s.lane = newLane(standing, s.current, s.dial())
	}
	return s.lane, nil
}

// sweep closes all connections if their standing is over.
func (s *lanes) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lane != nil && s.lane.lapsed() {
		s.lane.end()
		s.lane = nil
	}
}

// CloseIdleConnections closes the connections that no request uses.
func (s *lanes) CloseIdleConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lane != nil {
		s.lane.transport.CloseIdleConnections()
	}
}
