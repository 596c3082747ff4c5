package downstream

import (
	"log/slog"
	"net"
)

// ServeTCP accepts connections on l until Shutdown or Close, and then returns nil. The
// handler serves them, and is told the listener's name.
func (s *Server) ServeTCP(l net.Listener, name string) error {
	return s.serve(l, func(l *listener) error {
		return s.accept(l, func(c *Conn) { s.serveConn(c, name) })
	})
}

// serveConn serves a TCP connection.
func (s *Server) serveConn(conn *Conn, listener string) {
	conn.on(gotHead)
	s.limiter.beginSession()
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
