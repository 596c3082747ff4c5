package proxy

import (
	"io"
	"net/http"
	"time"

	"github.com/kgate/kgate/proxy/downstream"
)

const (
	// ownBodyTimeout is for a body that the gateway itself reads.
	ownBodyTimeout = 5 * time.Second
	// readAhead is how much of a body is read to find its end, before an answer of
	// the gateway's own.
	readAhead = 16 << 10
)

// answerUnread gets the connection ready for an answer of the gateway's own. If the
// end of the body has come already, with the header as a rule, the connection can
// be kept. Otherwise the answer says that it is closed.
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
	if w.hijacked.Load() {
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
		_ = rc.SetReadDeadline(time.Now().Add(downstream.LingerTimeout))
		if w.conn != nil {
			w.conn.LingerFor(downstream.LingerTimeout)
		}
	}
	// Even a small answer may not fit the connection: a client may send requests and
	// read no answers. A header alone over HTTP/2 waits for the connection only, which
	// has a time-out of its own.
	if w.http1 || w.bytes > 0 {
		_ = rc.SetWriteDeadline(time.Now().Add(w.stall))
	}
}

// unboundWrites undoes, for the next request on a connection, what the end of the
// one before has done: net/http does not.
func (w *response) unboundWrites() {
	if w.conn != nil && w.http1 {
		_ = w.conn.SetWriteDeadline(time.Time{})
	}
}
