package downstream

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// secureConn is a client's connection over TLS. net/http gets it in place of the
// *tls.Conn, which it would take over and read from by itself, so that frames can
// be timed above TLS. To net/http it is a connection in the clear, since it has no
// method ConnectionState: net/http finds HTTP/2 by its preface, and the handler
// adds http.Request.TLS.
type secureConn struct {
	net.Conn // tls, as an interface: what else it can is hidden
	tls      *tls.Conn
	client   *Conn
	frames   frameTimer
	logger   *slog.Logger

	once  sync.Once
	err   error                // of the handshake; io.EOF, which net/http takes without a word
	state *tls.ConnectionState // after the handshake
}

// Read implements net.Conn. The first one does the handshake, within the time
// that net/http gives to a request's header.
func (c *secureConn) Read(p []byte) (int, error) {
	if c.once.Do(c.handshake); c.err != nil {
		return 0, c.err
	}
	return c.client.readHTTP(c.Conn, &c.frames, p)
}

// Write implements net.Conn.
func (c *secureConn) Write(p []byte) (int, error) {
	c.client.wrote(p)
	return c.Conn.Write(p)
}

// CloseWrite closes the sending side of an upgraded connection.
func (c *secureConn) CloseWrite() error { return c.tls.CloseWrite() }

func (c *secureConn) handshake() {
	_ = c.SetWriteDeadline(time.Now().Add(c.frames.limit))
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }()
	err := c.tls.Handshake()
	if err == nil {
		state := c.tls.ConnectionState()
		c.state = &state
		return
	}
	c.err = io.EOF
	// net/http's answer to a client that speaks no TLS.
	if header := (tls.RecordHeaderError{}); errors.As(err, &header) && header.Conn != nil && looksLikeHTTP(header.RecordHeader) {
		_, _ = io.WriteString(header.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
		err = errors.New("the client sent HTTP in the clear")
	}
	c.logger.Debug("TLS handshake failed", slog.String("remote", c.RemoteAddr().String()), slog.Any("error", err))
}

// looksLikeHTTP reports whether the first bytes of a connection are those of a
// request in HTTP/1.
func looksLikeHTTP(first [5]byte) bool {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodOptions} {
		if strings.HasPrefix(method+" /", string(first[:])) {
			return true
		}
	}
	return false
}

// secureListener speaks TLS on the connections of a listener.
type secureListener struct {
	*listener
	config *tls.Config
}

func newSecureListener(l *listener, config *tls.Config) *secureListener {
	config = config.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	return &secureListener{listener: l, config: config}
}

// Accept implements net.Listener.
func (l *secureListener) Accept() (net.Conn, error) {
	conn, err := l.listener.Accept()
	if err != nil {
		return nil, err
	}
	client, over := conn.(*Conn), tls.Server(conn, l.config)
	client.secure = &secureConn{Conn: over, tls: over, client: client, frames: frameTimer{limit: l.headerTime}, logger: l.limiter.logger}
	return client.secure, nil
}
