package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// dial connects to a peer port, with TLS if the transport has it. Raw is what
// lies below conn. TCP's handshake may take first; 0: as long as ctx.
func (t *Transport) dial(ctx context.Context, addr string, first time.Duration) (raw *securedConn, conn net.Conn, err error) {
	if t.ctx.Err() != nil {
		return nil, nil, ErrClosed
	}
	connecting := ctx
	if first > 0 {
		var stop context.CancelFunc
		connecting, stop = context.WithTimeout(ctx, first)
		defer stop()
	}
	opened, err := t.config.network.DialContext(connecting, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	raw = t.secured.below(opened)
	conn, err = t.secure(ctx, raw, false)
	if err != nil {
		_ = raw.Close()
		return nil, nil, fmt.Errorf("%s: %w", addr, err)
	}
	return raw, conn, nil
}

// bound calls f, whose use of conn fails when ctx has ended.
func bound(ctx context.Context, conn net.Conn, f func() error) error {
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0)) // in the past
	})
	err := f()
	if !stop() {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// readAnswer reads the other end's answer to a preamble.
func readAnswer(conn net.Conn) error {
	var b [preambleSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		if errors.Is(err, io.EOF) || isReset(err) {
			return fmt.Errorf("no answer: the other end is not a kgate, or refuses this gateway: %w", err)
		}
		return err
	}
	return decodeAnswer(b[:])
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
