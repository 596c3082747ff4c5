package downstream

import (
	"errors"
	"log/slog"
	"net"
	"time"
)

// ServeTCP accepts connections on l until Shutdown or Close, and then returns nil. The
// handler serves them, and is told the listener's name.
func (s *Server) ServeTCP(l net.Listener, name string) error {
	return s.serve(l, func(l *listener) error {
		return s.accept(l, func(c *Conn) { s.serveConn(c, name) })
	})
}

// acceptAgain waits after a failure that passes, such as too many open files, and
// reports whether it is one.
func (s *Server) acceptAgain(err error) bool {
	var passing interface{ Temporary() bool }
	if !errors.As(err, &passing) || !passing.Temporary() {
		return false
	}
	if suppressed, ok := s.limiter.once.Allow("accept"); ok {
		s.cfg.Logger.Warn("a connection cannot be accepted", slog.Any("error", err), slog.Int("suppressed", suppressed))
	}
	const pause = 50 * time.Millisecond
	select {
	case <-time.After(pause):
	case <-s.base.Done():
	}
	return true
}

// serveConn serves a TCP connection.
func (s *Server) serveConn(conn *Conn, listener string) {
	conn.on(gotHead)
	s.limiter.beginSession(&conn.entry)
	defer s.limiter.endSession()
	// The PROXY header, if there has to be one, is read before anything else is done.
	if _, err := conn.Read(nil); err != nil {
		if suppressed, ok := s.limiter.once.Allow("header"); ok {
			s.cfg.Logger.Info("connection refused: no PROXY header", slog.String("remote", conn.raw.RemoteAddr().String()),
				slog.Any("error", err), slog.Int("suppressed", suppressed))
		}
		conn.Reset()
		return
	}
	s.cfg.Handler.ServeConn(s.base, conn, listener)
}
