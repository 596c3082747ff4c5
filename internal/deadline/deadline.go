// Package deadline sets the deadlines of connections, and seldom touches a timer for
// it.
//
// A server and a proxy set several deadlines for each request, nearly all of them later than the
// deadline before, and to set one in the runtime costs as much as a short system call. So a deadline
// later than the armed one is only noted. When the armed deadline passes, the failing Read or Write
// sets the later one and goes on.
package deadline

import (
	"cmp"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Reader reads from a connection with deadlines. All reads and read deadlines of
// the connection must go through it. Its zero value has no deadline. It is safe for
// concurrent use.
type Reader struct{ lazy lazy }

// Set has reads from conn fail after t, as net.Conn.SetReadDeadline; zero: never.
func (r *Reader) Set(conn net.Conn, t time.Time) error { return r.lazy.set(conn, reads, t) }

// Settle sets the deadline on conn itself, for callers that read from conn without Read.
func (r *Reader) Settle(conn net.Conn) error { return r.lazy.arm(conn, reads) }

// Interrupt makes the waiting Read, or the next Read that finds no data, fail with [ErrInterrupted].
// Deadlines stay as they are. Settle takes the interruption back.
func (r *Reader) Interrupt(conn net.Conn) error { return r.lazy.interrupt(conn, reads) }

// ErrInterrupted is the error of an interrupted Read. It is a temporary net.Error, so that crypto/tls
// reads on after it.
var ErrInterrupted error = interruption{}

type interruption struct{}

func (interruption) Error() string   { return "deadline: the read was interrupted" }
func (interruption) Timeout() bool   { return true }
func (interruption) Temporary() bool { return true }

func (r *Reader) Read(conn net.Conn, p []byte) (int, error) {
	for {
		n, err := conn.Read(p)
		if n > 0 || err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if r.lazy.wasInterrupted(conn, reads) {
			return 0, ErrInterrupted
		}
		if r.lazy.passed(conn, reads) {
			return n, err
		}
	}
}

// Writer is to writes what Reader is to reads.
type Writer struct{ lazy lazy }

// Set has writes to conn fail after t, as net.Conn.SetWriteDeadline; zero: never.
func (w *Writer) Set(conn net.Conn, t time.Time) error { return w.lazy.set(conn, writes, t) }

// Settle sets the deadline on conn itself, for callers that write to conn without Write.
func (w *Writer) Settle(conn net.Conn) error { return w.lazy.arm(conn, writes) }

func (w *Writer) Write(conn net.Conn, p []byte) (int, error) {
	written := 0
	for {
		n, err := conn.Write(p[written:])
		written += n
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || w.lazy.passed(conn, writes) {
			return written, err
		}
	}
}

// side sets the deadline of one side of a connection.
type side func(net.Conn, time.Time) error

var (
	reads  side = net.Conn.SetReadDeadline
	writes side = net.Conn.SetWriteDeadline
)

// lazy is the deadline of one side.
type lazy struct {
	mu          sync.Mutex
	want        moment // none: there is no deadline
	armed       moment // the connection's own deadline, not after want
	interrupted bool   // armed is in the past for that alone
}

// moment is a time, as time after start: thousands of connections have four of them each.
type moment time.Duration

const none moment = 0

var start = time.Now()

func momentOf(t time.Time) moment {
	if t.IsZero() {
		return none
	}
	return moment(cmp.Or(t.Sub(start), 1))
}

func (m moment) time() time.Time {
	if m == none {
		return time.Time{}
	}
	return start.Add(time.Duration(m))
}

func (l *lazy) set(conn net.Conn, of side, t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.want = momentOf(t)
	if l.want == none || l.armed != none && l.want >= l.armed {
		return nil
	}
	return l.armLocked(conn, of)
}

func (l *lazy) arm(conn net.Conn, of side) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.armLocked(conn, of)
}

func (l *lazy) armLocked(conn net.Conn, of side) error {
	l.armed, l.interrupted = l.want, false
	return of(conn, l.want.time())
}

func (l *lazy) interrupt(conn net.Conn, of side) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed, l.interrupted = momentOf(time.Unix(1, 0)), true // so that a deadline which is set now is only noted
	return of(conn, l.armed.time())
}

// wasInterrupted reports whether the deadline that has passed was an interruption, and ends it.
func (l *lazy) wasInterrupted(conn net.Conn, of side) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.interrupted {
		return false
	}
	_ = l.armLocked(conn, of) // if it fails, so does the next read
	return true
}

// passed reports whether the wanted deadline has passed. Otherwise it sets the deadline.
func (l *lazy) passed(conn net.Conn, of side) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.want != none && momentOf(time.Now()) >= l.want {
		return true
	}
	return l.armLocked(conn, of) != nil
}
