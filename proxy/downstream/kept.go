package downstream

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/kgate/kgate/internal/deadline"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// A connection that has sent no whole request makes room by its end. A kept connection that is closed while a request comes over it loses that request, and its
// client cannot know whether anybody has acted on it. So the limiter closes none. It asks,
// and the reader of the connection, who alone knows what has come, decides: if it has
// a request, the connection stays.
//
// Net/http closes an HTTP/1 connection whose idle read fails. Over HTTP/2 a read that fails would
// end requests that have just come. So net/http reads a GOAWAY there, as if the client had sent
// one: it answers with its own, which names the last request that it has seen, and closes the
// connection when all of them are answered. The client can send the others again.

// keeper is a connection that can be asked to leave. Neither method blocks.
type keeper interface {
	askToLeave()
	askToStay() // takes that back
}

func (c *Conn) askToLeave() { _ = c.reads.Interrupt(c.Conn) }
func (c *Conn) askToStay()  { _ = c.reads.Settle(c.Conn) }

const (
	// lastCall is for what the kernel has and the runtime has not noticed yet.
	lastCall = time.Millisecond
	// goodbyeTime is between a GOAWAY and the end of its connection, if no request is on it. net/http
	// would leave it open for a second, and somebody waits for its place.
	goodbyeTime = 20 * time.Millisecond
)

// goodbye is a GOAWAY frame without an error.
const goodbye = "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	switch {
	case len(p) == 1 && c.looksForEnd(&p[0]):
		return 0, nil
	case c.frames != nil:
		return c.readHTTP((*socket)(c), c.frames, p)
	}
	n, err := (*socket)(c).Read(p)
	c.inRecord = c.inRecord || n > 0
	return n, err
}

// socket reads from a connection without a look at what comes.
type socket Conn

func (s *socket) Read(p []byte) (int, error) {
	if s.closing.Load() {
		return 0, io.EOF
	}
	n, err := s.reads.Read(s.Conn, p)
	if s.closing.Load() { // nobody would get an answer
		return 0, io.EOF
	}
	return n, err
}

// readHTTP reads for net/http, from r, whose frames f knows. It is for one goroutine at a time.
func (c *Conn) readHTTP(r io.Reader, f *frameTimer, p []byte) (int, error) {
	if f.over {
		return 0, os.ErrDeadlineExceeded
	}
	if n := copy(p, f.injected); n > 0 {
		f.injected = f.injected[n:]
		return n, nil
	}
	n, err := r.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, deadline.ErrInterrupted):
		if n, err = c.leaveUnlessHeard(r, f, p); n == 0 && err == nil {
			return c.readHTTP(r, f, p)
		}
	case !f.ends.IsZero() && errors.Is(err, os.ErrDeadlineExceeded) && !f.incomplete():
		if f.ends = (time.Time{}); c.entry.kept.Load() {
			return n, io.EOF
		}
		_ = c.SetReadDeadline(time.Time{}) // a request has come before the GOAWAY
		return c.readHTTP(r, f, p)
	}
	if n > 0 && f.http1 && c.entry.kept.Load() {
		_ = c.begins(f.limit) // net/http sets the deadline when four bytes have come
	}
	c.inRecord = c.inRecord && n == 0
	f.read(c, p[:n])
	return n, err
}

// begins notes that a request has begun to come over a kept connection of HTTP/1, and bounds the
// time for its header.
func (c *Conn) begins(limit time.Duration) error {
	c.entry.kept.Store(false)
	c.listener.limiter.begins(&c.entry)
	return c.SetReadDeadline(time.Now().Add(limit))
}

// leaveUnlessHeard is what the reader does when the limiter wants the connection's place. No
// bytes and no error: it reads on.
func (c *Conn) leaveUnlessHeard(r io.Reader, f *frameTimer, p []byte) (int, error) {
	switch fresh := c.entry.fresh.Load(); {
	case fresh && tcpstate.HasUnread(c.raw):
		c.listener.limiter.stays(&c.entry)
		return 0, nil
	case fresh && !f.between():
		f.over = true // net/http, which looks for HTTP/2 first, may read again
		return 0, os.ErrDeadlineExceeded
	case f.incomplete():
		c.listener.limiter.begins(&c.entry)
		return 0, nil
	}
	_ = c.SetReadDeadline(time.Now().Add(lastCall)) // if it fails, so does the read
	n, err := r.Read(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && tcpstate.HasUnread(c.raw): // on a machine that stood
		return 0, c.reads.Interrupt(c.Conn)
	case f.http1 && c.inRecord && n == 0 && errors.Is(err, os.ErrDeadlineExceeded): // some of a request has come
		return 0, c.begins(f.limit)
	case f.http1 || !errors.Is(err, os.ErrDeadlineExceeded) && err != nil:
		return n, err
	case n > 0:
		c.listener.limiter.stays(&c.entry)
		return n, c.SetReadDeadline(time.Time{}) // HTTP/2 has none but that of frames
	case !f.between():
		return 0, io.EOF
	}
	f.injected, f.ends = goodbye, time.Now().Add(goodbyeTime)
	return 0, c.SetReadDeadline(f.ends)
}
