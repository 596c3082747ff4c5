package proxy

import (
	"bufio"
	"maps"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
)

// response is an answer as net/http takes it: what has been written of it, and which
// deadlines its connection has (deadlines.go). It knows nothing of pools and upstreams.
type response struct {
	http.ResponseWriter
	conn       *downstream.Conn // nil: the server is not ours
	http1      bool
	http10     bool
	clientGone bool
	last       bool        // the answer says that the connection ends
	stopped    atomic.Bool // the upload was, by the gateway, while the client was there
	unread     unreadBody

	wrote     atomic.Bool // the final header has been written
	hijacked  atomic.Bool // the client's connection is an upgraded one
	status    int
	bytes     int64 // of the body, that have been written
	remaining int64 // of the body, still to come, if their number is known
}

func newResponse(w http.ResponseWriter, r *http1.Request, conn *downstream.Conn) response {
	return response{
		ResponseWriter: w, conn: conn, unread: newUnreadBody(r),
		http1: r.Major == 1, http10: !r.AtLeast(1, 1),
	}
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ours returns the ResponseWriter if it is of package downstream: nil for HTTP/2, and for another
// server's.
func (w *response) ours() downstream.Answer {
	ours, _ := w.ResponseWriter.(downstream.Answer)
	return ours
}

// given returns what somebody has put into Header.
func (w *response) given() http.Header {
	if ours := w.ours(); ours != nil {
		return ours.Given()
	}
	return w.Header()
}

// writeHead writes the head of an answer. HTTP/1.0 has no informational ones.
func (w *response) writeHead(status int, fields http1.Fields) {
	ours := w.ours()
	switch {
	case status < 200 && w.http10:
		return
	case status >= 200 && w.wrote.CompareAndSwap(false, true):
		w.status = status
		w.answerUnread()
		if w.last {
			if ours == nil { // net/http looks at the first
				fields.Delete("Connection")
			}
			fields.Add("Connection", "close")
		}
	}
	if ours != nil {
		ours.WriteHead(status, fields)
		return
	}
	w.writeHeader(status, fields)
}

// writeHeader is writeHead for a ResponseWriter of net/http's.
func (w *response) writeHeader(status int, fields http1.Fields) {
	header := w.Header()
	before := maps.Clone(header)
	clear(header)
	maps.Copy(header, adapt.Header(fields))
	if !fields.Has(http1.ContentType) {
		header["Content-Type"] = nil // else net/http would guess one
	}
	w.WriteHeader(status)
	if status < 200 { // its fields are no part of the final answer
		clear(header)
		maps.Copy(header, before)
	}
}

// Write implements http.ResponseWriter. No byte that has come from the upstream
// stays in a buffer here while the next one is awaited: a slow upstream with a
// known length is a download that somebody watches. Answers of unknown length
// are flushed by copyBody.
func (w *response) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	w.remaining -= int64(n)
	if err == nil && w.remaining > 0 && n < copyBufferSize {
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	if err != nil {
		w.clientGone = true
	}
	return n, err
}

// Hijack takes the connection over for an upgrade.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, brw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
		w.hijacked.Store(true)
		w.wrote.Store(true)
	}
	return conn, brw, err
}
