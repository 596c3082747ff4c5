package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// How long a connection may be kept by a client that does nothing. Requests that
// hold a slot have the bounds of their pool; these are for all the others, and for
// what is left to do when a request is over.
const (
	// lingerTimeout is for a request's body that nobody wants any more, after its
	// answer: closing at once would reset the connection, and the answer with it.
	lingerTimeout = 5 * time.Second
	// ownBodyTimeout is for a body that the gateway itself reads.
	ownBodyTimeout = 5 * time.Second
	// readAhead is how much of a body is read to find its end, before an answer of
	// the gateway's own.
	readAhead = 16 << 10
)

// answerUnread gets the connection ready for an answer of the gateway's own. If the
// end of the body has come already, with the header as a rule, the connection can
// be kept. Otherwise the client is told that it is closed.
func (w *response) answerUnread() {
	b := &w.unread
	if b.ReadCloser == nil || b.ended {
		return
	}
	rc := http.NewResponseController(w.ResponseWriter)
	_ = rc.EnableFullDuplex()     // the answer goes out while the body is still to come
	if !b.expects && !w.chunked { // after chunks the connection is closed in any case
		_ = rc.SetReadDeadline(time.Unix(1, 0)) // only what has been read from the connection
		_, _ = io.CopyN(io.Discard, b, readAhead)
		if b.ended {
			return
		}
	}
	b.open = true
	w.Header().Set("Connection", "close")
}

// boundNothing lifts the bound that net/http puts on the reading of a whole request,
// which is for those that it answers itself: a body may take as long as its pool
// allows.
func (w *response) boundNothing(r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Time{})
	}
}

// readOwnBody bounds the time for a body that the gateway itself reads, and returns it.
func (w *response) readOwnBody(r *http.Request) io.ReadCloser {
	if w.unread.ReadCloser == nil {
		return r.Body
	}
	_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Now().Add(ownBodyTimeout))
	return &w.unread
}

// boundEnd bounds what net/http does when the handler is done: it reads the rest of
// the request, and writes the rest of the answer. forwarded is the body that an
// upstream was to have.
func (w *response) boundEnd(forwarded *requestBody) {
	if w.hijacked {
		return
	}
	rc := http.NewResponseController(w.ResponseWriter)
	if w.http1 && (w.unread.open || forwarded.unread()) {
		if forwarded.unread() {
			// An upload may still be reading. net/http would end that read, and
			// its deadline with it.
			_ = rc.SetReadDeadline(time.Unix(1, 0))
			_, _ = forwarded.ReadCloser.Read(make([]byte, 1)) // begins when the other has ended
		}
		_ = rc.SetReadDeadline(time.Now().Add(lingerTimeout))
		if w.conn != nil {
			w.conn.lingerFor(lingerTimeout)
		}
	}
	// Even a small answer may not fit the connection: a client may send requests and
	// read no answers. A header alone over HTTP/2 waits for the connection only, which
	// has a time-out of its own.
	if w.http1 || w.bytes > 0 {
		w.boundWrites(rc)
	}
}

// boundWrites has the client make room within a time that begins now.
func (w *response) boundWrites(rc *http.ResponseController) {
	_ = rc.SetWriteDeadline(time.Now().Add(w.stall))
}

// unboundWrites undoes, for the next request on a connection, what the end of the
// one before has done: net/http does not.
func (w *response) unboundWrites() {
	if w.conn != nil && w.http1 {
		_ = w.conn.SetWriteDeadline(time.Time{})
	}
}

// boundStalls bounds how long a client of a route without a pool may leave the
// gateway waiting, and returns the request's body. An upstream may be silent for as long
// as it likes there.
func (w *response) boundStalls(r *http.Request, h *hold) io.ReadCloser {
	rc := http.NewResponseController(w.ResponseWriter)
	h.cut = func(*abortCause) {} // there is nothing to cut: the deadline has passed
	w.ResponseWriter = &boundWriter{w.ResponseWriter, rc, w}
	if r.Body == nil || r.Body == http.NoBody {
		return r.Body
	}
	return &boundReader{r.Body, rc, w.stall, h}
}

type boundReader struct {
	io.ReadCloser
	rc    *http.ResponseController
	stall time.Duration
	hold  *hold
}

// errStalled is for clients of routes without a pool.
var errStalled = &abortCause{"the client has stalled", "no byte of the request's body has come for too long"}

// Read implements io.Reader.
func (b *boundReader) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(b.stall))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.hold.abort(errStalled)
	}
	return n, err
}

type boundWriter struct {
	http.ResponseWriter
	rc       *http.ResponseController
	response *response
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (b *boundWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// WriteHeader implements http.ResponseWriter. It writes informational answers at once.
func (b *boundWriter) WriteHeader(status int) {
	if status < 200 {
		b.response.boundWrites(b.rc)
		defer func() { _ = b.rc.SetWriteDeadline(time.Time{}) }()
	}
	b.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (b *boundWriter) Write(p []byte) (int, error) {
	b.response.boundWrites(b.rc)
	defer b.lift()
	return b.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController flushes with.
func (b *boundWriter) FlushError() error {
	b.response.boundWrites(b.rc)
	defer b.lift()
	return b.rc.Flush()
}

// lift lifts the bound of a write that is done. In HTTP/2, net/http resets the stream
// when the time has passed, though nothing is being written. In HTTP/1 only a write
// fails, and each has a bound of its own.
func (b *boundWriter) lift() {
	if !b.response.http1 {
		_ = b.rc.SetWriteDeadline(time.Time{})
	}
}
