package upstream

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/kgate/kgate/proxy/tcpstate"
)

// Tunnel is a connection for bytes that are not requests: opened for them, or
// the body of an answer by which a server agrees to an upgrade. Like all connections of its
// Client it is closed when the standing ends under which it was made.
type Tunnel struct {
	raw     *conn
	stream  net.Conn // raw, or TLS over it
	early   []byte
	release func() // ends the upload, if there is one
}

var _ io.ReadWriteCloser = (*Tunnel)(nil)

// Tunnel opens a connection. The error is a *DialError if the server cannot be
// reached, ErrLapsed if there is no right to send, or what has ended ctx.
func (c *Client) Tunnel(ctx context.Context) (*Tunnel, error) {
	standing := c.endLapsed()
	if standing == 0 {
		return nil, ErrLapsed
	}
	caller := ctx
	if c.cfg.DialTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.DialTimeout)
		defer cancel()
	}
	raw, err := c.open(ctx, standing)
	if err != nil {
		return nil, dialError(caller, err)
	}
	return &Tunnel{raw: raw, stream: raw, release: func() {}}, nil
}

// Early returns the bytes of the server that have been read already.
func (t *Tunnel) Early() []byte { return t.early }

// Stream returns the connection from which the rest comes: the socket itself, if there is no
// TLS. Whoever writes to it must call Check right before each write.
func (t *Tunnel) Stream() net.Conn {
	if t.stream == net.Conn(t.raw) {
		return t.raw.Conn
	}
	return t.stream
}

// Check returns ErrLapsed if nothing may be sent.
func (t *Tunnel) Check() error { return t.raw.check() }

// Read implements io.Reader.
func (t *Tunnel) Read(p []byte) (int, error) {
	if len(t.early) > 0 {
		n := copy(p, t.early)
		t.early = t.early[n:]
		return n, nil
	}
	return t.stream.Read(p)
}

// Write implements io.Writer. It fails with ErrLapsed if nothing may be sent.
func (t *Tunnel) Write(p []byte) (int, error) { return t.stream.Write(p) }

// CloseWrite tells the server that nothing more comes.
func (t *Tunnel) CloseWrite() error {
	if err := t.Check(); err != nil {
		return err
	}
	return tcpstate.CloseWrite(t.stream)
}

// Drain waits until the server's system has all that was written, or the connection is closed.
// It reports false if the server takes nothing for as long as patience.
func (t *Tunnel) Drain(patience time.Duration) bool {
	return tcpstate.AwaitDelivered(t.raw.Conn, patience, time.Time{})
}

// Finish closes the connection in order, once its server has ended its side and Drain has
// returned: before, the server would not learn of the end until it had read what comes first.
// When Finish returns the socket is closed, by this call or another.
func (t *Tunnel) Finish() {
	_ = t.raw.Close()
	t.release()
}

// Close breaks the connection off, and drops what has not left the kernel. It may be called
// again, and after Finish.
func (t *Tunnel) Close() error {
	t.raw.reset()
	t.release()
	return nil
}
