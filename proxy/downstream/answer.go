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
	"github.com/kgate/kgate/proxy/tcpstate"
)

// Answer is what a handler writes the answer to a request of HTTP/1 to. A handler that knows it need
// not go through net/http's headers.
type Answer interface {
	http.ResponseWriter
	// Given returns what somebody has put into Header; nil: nothing.
	Given() http.Header
	// WriteHead is WriteHeader with these fields, and none of Header's.
	WriteHead(status int, fields http1.Fields)
	// Reuse says that nobody uses the request when the handler has returned, nor anything of it,
	// nor its context: another request may have its place.
	Reuse()
}

// answer is an Answer. What it adds to the handler's fields is a date, the framing, and whether the
// connection ends. The names of its trailer all begin with http.TrailerPrefix.
//
// A body of unknown length that is shorter than mostPending, and whole when the handler returns, gets
// its length. Another is sent in chunks.
type answer struct {
	client  *client
	request http1.Request
	ctx     requestContext
	body    requestBody
	header  http.Header // nil until somebody asks

	// mu guards progress: who reads the body may say 100 Continue meanwhile.
	mu sync.Mutex
	progress
}

// progress is how far an answer has come.
type progress struct {
	out       *[]byte // lent; what has not been written
	keep      string  // what its Connection says, but for close
	status    int16   // of the final head; 0: none yet
	announces bool    // a trailer
	committed bool    // the final head is in out, or written
	last      bool    // the connection ends behind it
	hijacked  bool
	unused    bool // see Reuse
	sized     bool
	framing   http1.Framing
	length    int64  // that the handler has announced, if sized
	written   int64  // of the body
	pending   []byte // of the body, before the head is committed
	err       error  // of the first write that failed
}

var (
	_ Answer        = (*answer)(nil)
	_ http.Hijacker = (*answer)(nil)
	_ io.ReaderFrom = (*answer)(nil)
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
func (w *answer) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// SetReadDeadline is for http.ResponseController.
func (w *answer) SetReadDeadline(t time.Time) error { return w.client.conn.SetReadDeadline(t) }

// SetWriteDeadline is for http.ResponseController.
func (w *answer) SetWriteDeadline(t time.Time) error { return w.client.conn.SetWriteDeadline(t) }

// Given implements Answer.
func (w *answer) Given() http.Header { return w.header }

// Reuse implements Answer.
func (w *answer) Reuse() { w.unused = true }

// WriteHeader implements http.ResponseWriter.
func (w *answer) WriteHeader(status int) { w.WriteHead(status, adapt.Fields(w.header)) }

// WriteHead implements Answer.
func (w *answer) WriteHead(status int, fields http1.Fields) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHead(status, fields)
}

func (w *answer) writeHead(status int, fields http1.Fields) {
	if w.status != 0 || w.hijacked {
		return
	}
	out := w.buffer()
	if status < 200 && status != http.StatusSwitchingProtocols {
		var err error
		if *out, err = fields.AppendTo(http1.AppendStatusLine(*out, status), isFraming); err != nil {
			*out = (*out)[:0] // it is left out
			return
		}
		*out = append(*out, "\r\n"...)
		w.flush()
		return
	}
	w.status = int16(status)
	w.announced(fields)
	var err error
	if *out, err = fields.AppendTo(http1.AppendStatusLine(*out, status), w.isNotHead); err != nil {
		w.client.server.cfg.Logger.Error("an answer has a field that cannot be written", slog.Any("error", err))
		w.status, w.last, w.sized, w.length = http.StatusInternalServerError, true, true, 0
		*out = http1.AppendStatusLine((*out)[:0], int(w.status))
		fields = nil
	}
	if !fields.Has(http1.Date) {
		*out = http1.AppendDate(*out, time.Now())
	}
	if w.sized || !w.mayHaveBody() {
		w.commit(false)
	}
}

// isFraming reports whether a field is the connection's, not the handler's.
func isFraming(f *http1.Field) bool {
	return f.ID == http1.Connection || f.ID == http1.ContentLength || f.ID == http1.TransferEncoding
}

// isNotHead reports whether a field of the handler's is not written as it is.
func (w *answer) isNotHead(f *http1.Field) bool {
	return isFraming(f) || f.ID == http1.Other && strings.HasPrefix(f.Name, http.TrailerPrefix) ||
		f.ID == http1.ContentType && w.status == http.StatusNotModified
}

// announced reads what the handler says of the connection, the length and the trailer.
func (w *answer) announced(fields http1.Fields) {
	for i := range fields {
		switch f := &fields[i]; f.ID {
		case http1.Connection:
			w.readConnection(f.Value)
		case http1.ContentLength:
			if w.sized || w.status == http.StatusNoContent || w.status == http.StatusNotModified {
				continue
			}
			n, err := strconv.ParseInt(f.Value, 10, 64)
			w.sized, w.length = err == nil && n >= 0, n
		case http1.Trailer:
			w.announces = true
		default:
		}
	}
}

// readConnection reads what a line of Connection says.
func (w *answer) readConnection(line string) {
	for token := range strings.SplitSeq(line, ",") {
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
	case w.request.Minor > 0:
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
	switch c := w.client.conn; {
	case w.request.Close, w.request.Minor == 0, w.framing.Kind == http1.UntilClose:
		return true
	case !w.body.ended.Load():
		return true // who knows when it ends
	case c.IsWanted():
		return true // a kept connection would have to make room
	default: // the next request goes to another gateway, unless it is here already
		return (c.Ends() || c.endsSoon.Load()) && !w.isFollowed()
	}
}

// endsByClose reports whether the end of the connection ends the answer.
func (w *answer) endsByClose() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.framing.Kind == http1.UntilClose
}

// isFollowed reports whether something of another request has come.
func (w *answer) isFollowed() bool {
	return w.client.in.Len() > 0 || tcpstate.HasUnread(w.client.conn.raw)
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
		_, w.err = w.client.conn.over().Write(*w.out)
	}
	*w.out = (*w.out)[:0]
	if w.err != nil {
		w.last = true
		w.client.conn.on(gotEnd)
	}
}

// Write implements io.Writer.
func (w *answer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hijacked {
		return 0, http.ErrHijacked
	}
	w.writeOK()
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
	w.writeOK()
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
	w.writeOK()
	if !w.sized || w.client.conn.tls != nil || !w.mayHaveBody() || w.request.Method == http.MethodHead || w.hijacked {
		w.mu.Unlock()
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	w.flush()
	left, err := w.length-w.written, w.err
	w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := w.client.conn.ReadFrom(io.LimitReader(r, left)) // not under mu: r may be the request's body, and say 100 Continue
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written += n
	return n, err
}

// gotTrailer notes what came behind the request's body.
func (w *answer) gotTrailer(fields http1.Fields) { w.request.Trailer = fields }

func (w *answer) connection() *Conn { return w.client.conn }

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
	w.client.conn.on(isSwitched)
	_ = w.client.conn.SetDeadline(time.Time{})
	in := &w.client.in
	said := bytes.Clone(in.Buffered())
	in.Discard(len(said))
	in.Release()
	br := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(said), w.client.conn.over()), max(len(said), smallOut))
	_, _ = br.Peek(len(said)) // so that they are buffered
	return w.client.conn.over(), bufio.NewReadWriter(br, bufio.NewWriter(w.client.conn.over())), nil
}

// finish sends what is left of the answer, and reports whether another request may follow.
func (w *answer) finish() (again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeOK()
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

// writeOK writes the head that a handler has not.
func (w *answer) writeOK() {
	if w.status == 0 {
		w.writeHead(http.StatusOK, adapt.Fields(w.header))
	}
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
	if *out, err = adapt.Fields(trailer).AppendTo(*out, isFraming); err != nil {
		*out = append((*out)[:from], http1.LastChunk...)
		w.last = true
	}
	*out = append(*out, "\r\n"...)
}

// release gives back what was lent: after a whole request also w, if nobody uses it.
func (w *answer) release(whole bool) {
	if w.out != nil {
		giveOut(w.out)
		w.out = nil
	}
	if w.unused && whole && !w.hijacked {
		w.client, w.ctx, w.body, w.header, w.progress = nil, requestContext{}, requestBody{}, nil, progress{}
		answers.Put(w)
	}
}

// answers are those that may be used again.
var answers = sync.Pool{New: func() any { return new(answer) }}

func newAnswer(cl *client) *answer {
	w := answers.Get().(*answer)
	w.client = cl
	w.ctx.conn = cl.conn
	w.body.answer = w
	return w
}
