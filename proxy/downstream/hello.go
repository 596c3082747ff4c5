package downstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"
)

// helloLimit bounds what is read of a client to learn which server it asks for.
const helloLimit = 32 << 10

// errHello ends a handshake that is not ours to go on with.
var errHello = errors.New("downstream: the ClientHello has been read")

// ServerName reads what a client of TCP says first, and returns the name of the server that
// it asks for (RFC 6066, section 3), in lower case: "" if it names none, or does not speak
// TLS. Nothing is answered. What was said is for the upstream. The time for it is that of a
// request's header.
func (c *Conn) ServerName() (name string, said []byte, err error) {
	return readServerName(c, c.listener.headerTime)
}

func readServerName(conn net.Conn, within time.Duration) (name string, said []byte, err error) {
	listener := &helloConn{Conn: conn}
	_ = conn.SetReadDeadline(time.Now().Add(within))
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	read := false
	err = tls.Server(listener, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name, read = strings.ToLower(strings.TrimSuffix(hello.ServerName, ".")), true
		return nil, errHello
	}}).HandshakeContext(context.Background())
	if !read && listener.err != nil {
		return "", nil, err
	}
	return name, listener.said, nil // else it speaks something else
}

// helloConn keeps what is read, and says nothing.
type helloConn struct {
	net.Conn
	said []byte
	err  error // of the connection
}

// Read implements net.Conn.
func (c *helloConn) Read(p []byte) (int, error) {
	room := helloLimit - len(c.said)
	if room <= 0 {
		c.err = errors.New("downstream: the ClientHello is too long")
		return 0, c.err
	}
	n, err := c.Conn.Read(p[:min(len(p), room)])
	c.said, c.err = append(c.said, p[:n]...), err
	return n, err
}

// Write implements net.Conn.
func (c *helloConn) Write(p []byte) (int, error) { return len(p), nil }
