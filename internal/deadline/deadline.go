// Package deadline sets the read deadlines of connections, and seldom touches a
// timer for it.
//
// A server and a proxy set several for each request, nearly all of them later than
// the one before: setting one in the runtime costs as much as a short system call.
// So a deadline that is later than the one that is set is only noted. When the
// earlier one passes, the Read that fails finds that out, sets the later one, and
// goes on.
package deadline

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Reader reads from a connection with deadlines. All reads and read deadlines of
// the connection must go through it. Its zero value has no deadline. It is safe for
// concurrent use.
type Reader struct {
	mu    sync.Mutex
	want  time.Time // zero: none
	armed time.Time // as the connection has it, not after want; zero: none
}

// Set has reads from conn fail after t, as net.Conn.SetReadDeadline; zero: never.
func (r *Reader) Set(conn net.Conn, t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want = t
	if t.IsZero() || !r.armed.IsZero() && !t.Before(r.armed) {
		return nil
	}
	return r.armLocked(conn)
}

func (r *Reader) armLocked(conn net.Conn) error {
	r.armed = r.want
	return conn.SetReadDeadline(r.want)
}

// Settle has conn itself keep the deadline, for who reads from it without Read.
func (r *Reader) Settle(conn net.Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.armLocked(conn)
}

// Read reads from conn.
func (r *Reader) Read(conn net.Conn, p []byte) (int, error) {
	for {
		n, err := conn.Read(p)
		if n > 0 || err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || r.passed(conn) {
			return n, err
		}
	}
}

// passed reports whether the deadline that is wanted has passed. Otherwise it is
// set.
func (r *Reader) passed(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.want.IsZero() && !time.Now().Before(r.want) {
		return true
	}
	return r.armLocked(conn) != nil
}
