package downstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
)

// answer is the answer to a request of HTTP/1, as net/http's handlers write one, but that the names
// of its trailer all begin with http.TrailerPrefix. What it adds to the handler's fields is a date,
// the framing, and whether the connection ends.
//
// A body of unknown length that is shorter than mostPending, and whole when the handler returns, gets
// its length. Another is sent in chunks.
type answer struct {
	client  *client
	conn    *Conn
	request *http.Request
	ctx     requestContext
	body    requestBody
	header  http.Header

	// mu guards what follows: who reads the body may say 100 Continue meanwhile.
	mu        sync.Mutex
	out       *[]byte // lent; what has not been written
	status    int     // of the final head; 0: none yet
	keep      string  // what its Connection says, but for close
	announces bool    // a trailer
	committed bool    // the final head is in out, or written
	last      bool    // the connection ends behind it
	hijacked  bool
	framing   http1.Framing
	sized     bool
	length    int64  // that the handler has announced, if sized
	written   int64  // of the body
	pending   []byte // of the body, before the head is committed
	err       error  // of the first write that failed
}

var (
	_ http.ResponseWriter = (*answer)(nil)
	_ http.Hijacker       = (*answer)(nil)
	_ io.ReaderFrom       = (*answer)(nil)
)

const (
	mostPending = 2 << 10
	smallOut    = 4 << 10
	largeOut    = 36 << 10
	mostChunk   = 32 << 10
)

// What is written is put together in lent buffers.
var (
	smallOuts = sync.Pool{New: func() any { b := make([]byte, 0, smallOut); return &b }}
	largeOuts = sync.Pool{New: func() any { b := make([]byte, 0, largeOut); return &b }}
)

func giveOut(b *[]byte) {
	*b = (*b)[:0]
	switch cap(*b) {
	case smallOut:
		smallOuts.Put(b)
	case largeOut:
		largeOuts.Put(b)
	}
}

// Header implements http.ResponseWriter.
func (w *answer) Header() http.Header { return w.header }

// SetReadDeadline is for http.ResponseController.
func (w *answer) SetReadDeadline(t time.Time) error { return w.conn.SetReadDeadline(t) }

// SetWriteDeadline is for http.ResponseController.
func (w *answer) SetWriteDeadline(t time.Time) error { return w.conn.SetWriteDeadline(t) }

// WriteHeader implements http.ResponseWriter.
func (w *answer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(status)
}

func (w *answer) writeHeader(status int) {
	if w.status != 0 || w.hijacked {
		return
	}
	out := w.buffer()
	if status < 200 && status != http.StatusSwitchingProtocols {
		var err error
		*out = http1.AppendStatusLine(*out, status)
		if *out, w.client.names, err = adapt.AppendHeader(*out, w.header, isFraming, w.client.names); err != nil {
			*out = (*out)[:0] // it is left out
			return
		}
		*out = append(*out, "\r\n"...)
		w.flush()
		return
	}
	w.status = status
	w.announced()
	var err error
	*out = http1.AppendStatusLine(*out, status)
	if *out, w.client.names, err = adapt.AppendHeader(*out, w.header, w.isNotHead, w.client.names); err != nil {
		w.client.server.cfg.Logger.Error("an answer has a field that cannot be written", slog.Any("error", err))
		w.status, w.last, w.sized, w.length = http.StatusInternalServerError, true, true, 0
		*out = http1.AppendStatusLine((*out)[:0], w.status)
	}
	if _, ok := w.header["Date"]; !ok {
		*out = http1.AppendDate(*out, time.Now())
	}
	if w.sized || !w.mayHaveBody() {
		w.commit(false)
	}
}

// isFraming reports whether a field is the connection's, not the handler's.
func isFraming(name string) bool {
	return name == "Connection" || name == "Content-Length" || name == "Transfer-Encoding"
}

// isNotHead reports whether a field of the handler's is not written as it is.
func (w *answer) isNotHead(name string) bool {
	return isFraming(name) || strings.HasPrefix(name, http.TrailerPrefix) || w.status == http.StatusNotModified && name == "Content-Type"
}

// announced reads what the handler says of the connection, the length and the trailer.
func (w *answer) announced() {
	for _, v := range w.header["Connection"] {
		for token := range strings.SplitSeq(v, ",") {
			switch token = strings.TrimSpace(token); {
			case strings.EqualFold(token, "close"):
				w.last = true
			case token != "" && w.keep == "":
				w.keep = token
			case token != "":
				w.keep += ", " + token
			}
		}
	}
	if v := w.header["Content-Length"]; len(v) > 0 && w.status != http.StatusNoContent && w.status != http.StatusNotModified {
		n, err := strconv.ParseInt(v[0], 10, 64)
		w.sized, w.length = err == nil && n >= 0, n
	}
	w.announces = len(w.header["Trailer"]) > 0
}

func (w *answer) mayHaveBody() bool {
	return w.status >= 200 && w.status != http.StatusNoContent && w.status != http.StatusNotModified
}

// commit ends the head. Whole says that all of the body is pending.
func (w *answer) commit(whole bool) {
	w.committed = true
	switch {
	case !w.mayHaveBody():
	case w.sized:
		w.framing = http1.Framing{Kind: http1.Length, Sized: true, Length: w.length}
	case whole && !w.announces && (w.request.Method != http.MethodHead || w.written > 0):
		w.framing = http1.Framing{Kind: http1.Length, Sized: true, Length: w.written}
	case w.request.Method == http.MethodHead:
	case w.request.ProtoMinor > 0:
		w.framing = http1.Framing{Kind: http1.Chunked}
	default:
		w.framing = http1.Framing{Kind: http1.UntilClose}
	}
	w.last = w.last || w.mustEnd()
	out := w.buffer()
	*out = w.framing.Append(*out)
	switch {
	case w.last && w.keep != "":
		*out = append(append(append(*out, "Connection: "...), w.keep...), ", close\r\n"...)
	case w.last:
		*out = append(*out, "Connection: close\r\n"...)
	case w.keep != "":
		*out = append(append(append(*out, "Connection: "...), w.keep...), "\r\n"...)
	}
	*out = append(*out, "\r\n"...)
	pending := w.pending
	w.pending = nil
	if len(pending) > 0 {
		w.emit(pending)
	}
}

// mustEnd reports whether no other request may follow.
func (w *answer) mustEnd() bool {
	switch c := w.conn; {
	case w.request.Close, w.request.ProtoMinor == 0, w.framing.Kind == http1.UntilClose:
		return true
	case !w.body.ended.Load():
		return true // who knows when it ends
	case c.IsWanted():
		return true // one that is kept would have to make room
	default: // the next request goes to another gateway, unless it is there already
		return c.Ends() && w.client.in.Len() == 0
	}
}

// buffer returns what is to be written.
func (w *answer) buffer() *[]byte {
	if w.out == nil {
		w.out = smallOuts.Get().(*[]byte)
	}
	return w.out
}

// room returns the buffer with room for n bytes more, which are at most largeOut.
func (w *answer) room(n int) *[]byte {
	out := w.buffer()
	if len(*out)+n <= cap(*out) {
		return out
	}
	if cap(*out) == largeOut || len(*out)+n > largeOut {
		w.flush()
	}
	if n > cap(*out) || len(*out) > 0 {
		large := largeOuts.Get().(*[]byte)
		*large = append(*large, *out...)
		giveOut(out)
		w.out = large
	}
	return w.out
}

// emit writes some of the body, framed.
func (w *answer) emit(p []byte) {
	if w.request.Method == http.MethodHead {
		return
	}
	for len(p) > 0 && w.err == nil {
		piece := p[:min(len(p), mostChunk)]
		p = p[len(piece):]
		if w.framing.Kind != http1.Chunked {
			out := w.room(len(piece))
			*out = append(*out, piece...)
			continue
		}
		out := w.room(http1.ChunkRoom + len(piece) + http1.ChunkEnd)
		*out = append(strconv.AppendInt(*out, int64(len(piece)), 16), "\r\n"...)
		*out = append(append(*out, piece...), "\r\n"...)
	}
}

// flush writes what is in the buffer.
func (w *answer) flush() {
	if w.out == nil || len(*w.out) == 0 {
		return
	}
	if w.err == nil {
		_, w.err = w.conn.over.Write(*w.out)
	}
	*w.out = (*w.out)[:0]
	if w.err != nil {
		w.last = true
		w.conn.on(gotEnd)
	}
}

// Write implements io.Writer.
func (w *answer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hijacked {
		return 0, http.ErrHijacked
	}
	w.writeHeader(http.StatusOK)
	switch {
	case len(p) == 0:
		return 0, w.err
	case !w.mayHaveBody():
		return 0, http.ErrBodyNotAllowed
	case w.sized && w.written+int64(len(p)) > w.length:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if !w.committed {
		if len(w.pending)+len(p) <= mostPending {
			w.pending = append(w.pending, p...)
			return len(p), nil
		}
		w.commit(false)
	}
	if w.emit(p); w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// FlushError is for http.ResponseController.
func (w *answer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hijacked {
		return http.ErrHijacked
	}
	w.writeHeader(http.StatusOK)
	if !w.committed {
		w.commit(false)
	}
	w.flush()
	return w.err
}

// Flush implements http.Flusher.
func (w *answer) Flush() { _ = w.FlushError() }

// ReadFrom implements io.ReaderFrom: a body of known length goes from socket to socket.
func (w *answer) ReadFrom(r io.Reader) (int64, error) {
	w.mu.Lock()
	w.writeHeader(http.StatusOK)
	if !w.sized || w.conn.tls != nil || !w.mayHaveBody() || w.request.Method == http.MethodHead || w.hijacked {
		w.mu.Unlock()
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	w.flush()
	left, err := w.length-w.written, w.err
	w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := w.conn.ReadFrom(io.LimitReader(r, left)) // not under mu: r may be the request's body, and say 100 Continue
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written += n
	return n, err
}

// sayContinue tells the client to send its body, unless it has an answer.
func (w *answer) sayContinue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 && !w.hijacked && w.err == nil {
		out := w.buffer()
		*out = append(*out, "HTTP/1.1 100 Continue\r\n\r\n"...)
		w.flush()
	}
}

// Hijack implements http.Hijacker. The connection is the caller's to close.
func (w *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.body.finish() // not under mu: its reader may be about to say 100 Continue
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.hijacked:
		return nil, nil, http.ErrHijacked
	case w.committed:
		return nil, nil, errors.New("downstream: the answer has begun")
	}
	w.hijacked = true
	w.conn.on(isSwitched)
	_ = w.conn.SetDeadline(time.Time{})
	in := &w.client.in
	said := bytes.Clone(in.Buffered())
	in.Discard(len(said))
	in.Release()
	br := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(said), w.conn.over), max(len(said), smallOut))
	_, _ = br.Peek(len(said)) // so that they are buffered
	return w.conn.over, bufio.NewReadWriter(br, bufio.NewWriter(w.conn.over)), nil
}

// finish sends what is left of the answer, and reports whether another request may follow.
func (w *answer) finish() (again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(http.StatusOK)
	if !w.committed {
		w.commit(true)
	}
	switch {
	case w.framing.Kind == http1.Chunked && w.request.Method != http.MethodHead:
		w.endChunks()
	case w.sized && w.written != w.length && w.request.Method != http.MethodHead:
		w.last = true // the client must not take it for whole
	}
	w.flush()
	return !w.last && w.err == nil
}

// endChunks writes the last chunk, and the trailer that the handler has set.
func (w *answer) endChunks() {
	trailer := make(http.Header)
	for name, v := range w.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			trailer[http.CanonicalHeaderKey(name)] = v
		}
	}
	out := w.room(len(http1.LastChunk) + 2)
	from := len(*out)
	*out = append(*out, http1.LastChunk...)
	var err error
	if *out, w.client.names, err = adapt.AppendHeader(*out, trailer, isFraming, w.client.names); err != nil {
		*out = append((*out)[:from], http1.LastChunk...)
		w.last = true
	}
	*out = append(*out, "\r\n"...)
}

// release gives the buffers back.
func (w *answer) release() {
	if w.out != nil {
		giveOut(w.out)
		w.out = nil
	}
}
