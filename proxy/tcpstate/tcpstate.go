// Package tcpstate tells what the kernel knows of a TCP connection: how far its other side
// has come, and how it has ended. Most of it is known on Linux only. Elsewhere, and of
// connections that are not TCP's, each function says what it returns.
package tcpstate

import (
	"errors"
	"io"
	"net"
	"time"
)

// AwaitDelivered waits until the other side's system has acknowledged all that was written
// to conn, or conn is closed. It reports false if nothing was acknowledged for as long as
// patience, or the time is up, which a zero time never is. It returns at once where that
// cannot be told.
func AwaitDelivered(conn net.Conn, patience time.Duration, until time.Time) bool {
	last, since := uint64(0), time.Now()
	for pause := time.Millisecond; !IsDelivered(conn); pause = min(2*pause, 50*time.Millisecond) {
		if time.Since(since) >= patience || !until.IsZero() && !time.Now().Before(until) {
			return false
		}
		time.Sleep(pause)
		if acked, _ := Acked(conn); acked != last {
			last, since = acked, time.Now()
		}
	}
	return true
}

// ResetOnClose sets whether the system resets conn when it is closed, or when the process
// ends without closing it, and drops what has not been sent. Otherwise it sends the rest
// first, which may take minutes. It does nothing to connections that are not TCP's.
func ResetOnClose(conn net.Conn, reset bool) {
	tcp, ok := conn.(interface{ SetLinger(sec int) error })
	if !ok {
		return
	}
	linger := -1
	if reset {
		linger = 0
	}
	_ = tcp.SetLinger(linger) // fails if it is closed already
}

// CloseWrite closes the sending side of w, if it can be closed alone.
func CloseWrite(w io.Writer) error {
	if half, ok := w.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
