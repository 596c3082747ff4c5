package cluster

import "net"

// Tap is a listener that tells what is read on its connections.
type Tap struct {
	net.Listener
	// Read is called with what has been read, on the reading goroutine and
	// before anybody else sees it.
	Read func(conn net.Conn, p []byte)
}

// Accept implements net.Listener.
func (t *Tap) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tapped{TCPConn: conn.(*net.TCPConn), tap: t}, nil
}

type tapped struct {
	*net.TCPConn
	tap *Tap
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if n > 0 {
		c.tap.Read(c, p[:n])
	}
	return n, err
}
