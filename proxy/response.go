package proxy

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/proxy/downstream"
)

// response is an answer as net/http takes it: what has been written of it, and which
// deadlines its connection has (deadlines.go). It knows nothing of pools and upstreams.
type response struct {
	http.ResponseWriter
	conn       *downstream.Conn // nil: the server is not ours
	http1      bool
	http10     bool
	chunked    bool // the request's body comes in chunks
	clientGone bool
	stopped    atomic.Bool   // the upload was, by the gateway, while the client was there
	stall      time.Duration // how long the client may leave the gateway waiting, once that is bounded
	unread     unreadBody

	wrote     atomic.Bool // the final header has been written
	hijacked  atomic.Bool // the client's connection is an upgraded one
	status    int
	bytes     int64 // of the body, that have been written
	remaining int64 // of the body, still to come, if their number is known
}

func newResponse(w http.ResponseWriter, r *http.Request, conn *downstream.Conn) response {
	return response{
		ResponseWriter: w, conn: conn, stall: conn.StallTimeout(), unread: newUnreadBody(r),
		http1: r.ProtoMajor == 1, http10: !r.ProtoAtLeast(1, 1), chunked: len(r.TransferEncoding) > 0,
	}
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter. HTTP/1.0 has no informational answers.
func (w *response) WriteHeader(status int) {
	switch {
	case status < 200 && w.http10:
		return
	case status >= 200 && w.wrote.CompareAndSwap(false, true):
		w.status = status
		w.answerUnread()
	}
	w.ResponseWriter.WriteHeader(status)
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
