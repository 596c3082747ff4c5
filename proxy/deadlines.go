package proxy

import (
	"io"
	"net/http"
	"time"

	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/http1"
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
	if b.request == nil || b.ended {
		return
	}
	w.fullDuplex()
	if !b.expects && (!w.isForeign() || !b.request.Chunked) { // there the connection is closed in any case
		_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Unix(1, 0)) // only what has been read from the connection
		_, _ = io.CopyN(io.Discard, b, readAhead)
		if b.ended {
			return
		}
	}
	b.open = true
	w.last = true
}

// isForeign reports whether the request came over HTTP/1 to a server of net/http's, in a program
// that has the gateway in it.
func (w *response) isForeign() bool { return w.http1 && w.conn == nil }

// fullDuplex lets an answer go out while the request's body is still to come. By default net/http
// reads an HTTP/1.1 request's body first: an upstream's early "413" would wait, slot in hand, for a
// slow upload.
func (w *response) fullDuplex() {
	if w.isForeign() {
		_ = http.NewResponseController(w.ResponseWriter).EnableFullDuplex()
	}
}

// boundNothing lifts the bound that a program's server may put on the reading of a whole request: a
// body may take as long as its pool allows.
func (w *response) boundNothing(r *http1.Request) {
	if w.isForeign() && r.Body != nil {
		_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Time{})
	}
}

// readOwnBody bounds the time for a body that the gateway itself reads, and returns it.
func (w *response) readOwnBody(r *http1.Request) io.ReadCloser {
	if w.unread.request == nil {
		return r.Body
	}
	_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Now().Add(ownBodyTimeout))
	return &w.unread
}

// boundEnd bounds what net/http does when the handler is done: it reads the rest of
// the request, and writes the rest of the answer. Of HTTP/1, package downstream sees to that. The
// forwarded body is the one that an upstream was to have.
func (w *response) boundEnd(forwarded *requestBody) {
	if w.hijacked.Load() || w.http1 && !w.isForeign() {
		return
	}
	rc := http.NewResponseController(w.ResponseWriter)
	if w.isForeign() && (w.unread.open || forwarded.unread()) {
		if forwarded.unread() {
			// An upload may still be reading. net/http would end that read, and
			// its deadline with it.
			_ = rc.SetReadDeadline(time.Unix(1, 0))
			_, _ = forwarded.ex.request.Body.Read(make([]byte, 1)) // begins when the other has ended
		}
		_ = rc.SetReadDeadline(time.Now().Add(downstream.LingerTimeout))
	}
	// Even a small answer may not fit the connection: a client may send requests and
	// read no answers. A header alone over HTTP/2 waits for the connection only, which
	// has a time-out of its own.
	if w.http1 || w.bytes > 0 {
		_ = rc.SetWriteDeadline(time.Now().Add(w.conn.StallTimeout()))
	}
}
