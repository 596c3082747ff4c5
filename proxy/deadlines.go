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
	// smallAnswer surely fits the send buffer of a connection.
	smallAnswer = 16 << 10
)

// unreadBody is an HTTP/1 request's body that has not been forwarded. net/http
// waits for its end before it sends the header of an answer, and for ever; an
// answer of the gateway's own is not to depend on that.
type unreadBody struct {
	io.ReadCloser      // nil: the request has none, or it has been forwarded
	expects       bool // reading it would tell the client to go on
	ended         bool // its end has come; net/http then reads on from the connection
	open          bool // an answer has been given, and its end has not come
}

func newUnreadBody(r *http.Request) unreadBody {
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
		return unreadBody{}
	}
	return unreadBody{ReadCloser: r.Body, expects: r.Header.Get("Expect") != ""}
}

// Read implements io.Reader.
func (b *unreadBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// answerUnread gets the connection ready for an answer of the gateway's own. If the
// end of the body has come already, with the header as a rule, the connection can
// be kept. Otherwise the client is told that it is closed.
func (ex *exchange) answerUnread() {
	b := &ex.unread
	if b.ReadCloser == nil || b.ended {
		return
	}
	rc := http.NewResponseController(ex.ResponseWriter)
	_ = rc.EnableFullDuplex()      // the answer goes out while the body is still to come
	if !b.expects && !ex.chunked { // after chunks the connection is closed in any case
		_ = rc.SetReadDeadline(time.Unix(1, 0)) // only what has been read from the connection
		_, _ = io.CopyN(io.Discard, b, smallAnswer)
		if b.ended {
			return
		}
	}
	b.open = true
	ex.Header().Set("Connection", "close")
}

// boundNothing lifts the bound that net/http puts on the reading of a whole request,
// which is for those that it answers itself: a body may take as long as its pool
// allows.
func (ex *exchange) boundNothing(r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(ex.ResponseWriter).SetReadDeadline(time.Time{})
	}
}

// readOwnBody bounds the time for a body that the gateway itself reads.
func (ex *exchange) readOwnBody(r *http.Request) {
	if ex.unread.ReadCloser != nil {
		r.Body = &ex.unread
		_ = http.NewResponseController(ex.ResponseWriter).SetReadDeadline(time.Now().Add(ownBodyTimeout))
	}
}

// boundEnd bounds what net/http does when the handler is done: it reads the rest of
// the request, and writes the rest of the answer.
func (ex *exchange) boundEnd() {
	if ex.hijacked {
		return
	}
	rc := http.NewResponseController(ex.ResponseWriter)
	if ex.overHTTP1 && (ex.unread.open || ex.body.unread()) {
		if ex.body.unread() {
			// A transport may still be reading. net/http would end that read, and
			// its deadline with it.
			_ = rc.SetReadDeadline(time.Unix(1, 0))
			_, _ = ex.body.ReadCloser.Read(make([]byte, 1)) // begins when the other has ended
		}
		_ = rc.SetReadDeadline(time.Now().Add(lingerTimeout))
	}
	// What is left of a small answer fits the connection, but in HTTP/2 the client
	// may not let it have any.
	if ex.rec.Bytes > smallAnswer || !ex.overHTTP1 && ex.rec.Bytes > 0 {
		ex.boundWrites(rc)
	}
}

// boundWrites has the client make room within a time that begins now.
func (ex *exchange) boundWrites(rc *http.ResponseController) {
	if client, _ := connOf(&ex.ctx); client != nil && ex.overHTTP1 {
		client.writeDeadline = true
	}
	_ = rc.SetWriteDeadline(time.Now().Add(ex.handler.cfg.StallTimeout))
}

// unboundWrites undoes, for the next request on a connection, what the end of the
// one before has done: net/http does not.
func (ex *exchange) unboundWrites() {
	if client, _ := connOf(&ex.ctx); client != nil && client.writeDeadline && ex.overHTTP1 {
		client.writeDeadline = false
		_ = http.NewResponseController(ex.ResponseWriter).SetWriteDeadline(time.Time{})
	}
}

// boundStalls bounds how long a client of a route without a pool may leave the
// gateway waiting. An upstream may be silent for as long as it likes there.
func (ex *exchange) boundStalls(r *http.Request) {
	rc := http.NewResponseController(ex.ResponseWriter)
	ex.hold.cut = func(*abortCause) {} // there is nothing to cut: the deadline has passed
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &boundReader{r.Body, rc, ex}
	}
	ex.ResponseWriter = &boundWriter{ex.ResponseWriter, rc, ex}
}

type boundReader struct {
	io.ReadCloser
	rc *http.ResponseController
	ex *exchange
}

// errStalled is for clients of routes without a pool.
var errStalled = &abortCause{"the client has stalled", "no byte of the request's body has come for too long"}

// Read implements io.Reader.
func (b *boundReader) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(b.ex.handler.cfg.StallTimeout))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.ex.hold.abort(errStalled)
	}
	return n, err
}

type boundWriter struct {
	http.ResponseWriter
	rc *http.ResponseController
	ex *exchange
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (b *boundWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// Write implements io.Writer.
func (b *boundWriter) Write(p []byte) (int, error) {
	b.ex.boundWrites(b.rc)
	return b.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController flushes with.
func (b *boundWriter) FlushError() error {
	b.ex.boundWrites(b.rc)
	return b.rc.Flush()
}
