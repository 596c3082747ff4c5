package upstream

import (
	"context"
	"net"
)

// Tunnel is a connection for bytes that are no requests. Like all connections of its
// Client it is closed when the standing ends under which it was made.
type Tunnel struct{ raw *conn }

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
	return &Tunnel{raw}, nil
}

// Socket returns the connection itself. Whoever writes to it calls Check right before
// each write.
func (t *Tunnel) Socket() net.Conn { return t.raw.Conn }

// Check returns ErrLapsed if nothing may be sent any more.
func (t *Tunnel) Check() error {
	if t.raw.client.cfg.Standing() != t.raw.standing {
		return ErrLapsed
	}
	return nil
}

// Write sends p, if that is still allowed.
func (t *Tunnel) Write(p []byte) (int, error) { return t.raw.Write(p) }

// CloseWrite tells the server that nothing more comes.
func (t *Tunnel) CloseWrite() error {
	if err := t.Check(); err != nil {
		return err
	}
	return t.raw.CloseWrite()
}

// Close closes the connection in order. What has been written arrives first: until then
// the server may be reading it. When Close returns the socket is closed, whoever closed
// it.
func (t *Tunnel) Close() error { return t.raw.closeInOrder() }

// Reset closes the connection and drops what has not left the kernel.
func (t *Tunnel) Reset() { t.raw.reset() }
