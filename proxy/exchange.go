package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/proxy/upstream"
)

// exchange is one request and its answer: the ResponseWriter that everything
// writes to, and what is known about the request meanwhile. It is used by
// the request's goroutine only, but for body, hold, client and wrote.
type exchange struct {
	http.ResponseWriter
	handler *snapshot
	ctx     exchangeContext
	body    requestBody
	unread  unreadBody
	hold    hold
	spans   spans

	out outgoing

	route    *route
	upstream *backend
	client   atomic.Pointer[upstream.Client] // the upstream's
	failure  error                           // why the upstream gave no answer
	verdict  verdict                         // on the upstream

	arrived  time.Time
	admitted time.Time     // zero until then
	asks     *http.Request // for a ticket, through the ticket API
	prefer   int           // the preference "wait" that was honoured, else -1

	rec        Record
	note       Note
	wrote      atomic.Bool // the final header has been written
	hijacked   bool        // the client's connection is an upgraded one
	overHTTP1  bool
	http10     bool
	chunked    bool  // the request's body comes in chunks
	remaining  int64 // body bytes still to come, if the upstream announced how many
	clientGone bool
}

// outgoing is the request as an upstream gets it.
type outgoing struct {
	request http.Request
	url     url.URL
	values  [10]string // of the fields that the gateway writes
	used    int
}

// value returns s as the values of a field.
func (o *outgoing) value(s string) []string {
	if o.used == len(o.values) {
		return []string{s}
	}
	o.values[o.used] = s
	o.used++
	return o.values[o.used-1 : o.used : o.used]
}

func newExchange(h *snapshot, w http.ResponseWriter, r *http.Request) *exchange {
	ex := &exchange{
		ResponseWriter: w, handler: h, arrived: time.Now(), prefer: -1,
		overHTTP1: r.ProtoMajor == 1, http10: !r.ProtoAtLeast(1, 1), chunked: len(r.TransferEncoding) > 0, unread: newUnreadBody(r),
	}
	ex.ctx.parent, ex.ctx.ex = r.Context(), ex
	return ex
}

var (
	_ http.ResponseWriter = (*exchange)(nil)
	_ http.Hijacker       = (*exchange)(nil)
)

// Unwrap lets http.ResponseController reach the server's own writer.
func (ex *exchange) Unwrap() http.ResponseWriter { return ex.ResponseWriter }

// WriteHeader implements http.ResponseWriter. Informational answers pass, but for
// an upstream's 100: it makes the transport read the body, upon which net/http
// itself tells the client to go on, and the client should hear it once.
func (ex *exchange) WriteHeader(status int) {
	switch {
	case status == http.StatusContinue:
		ex.hold.move()
		return
	case status < 200:
		ex.hold.move()
		removeReserved(ex.Header())
		if ex.http10 {
			return // HTTP/1.0 has no such answers
		}
	case ex.wrote.CompareAndSwap(false, true):
		ex.rec.Status = status
		ex.answerUnread()
		ex.closeIfDraining()
		ex.decorate()
	}
	ex.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. No byte that has come from the upstream
// stays in a buffer here while the next one is awaited: a slow upstream with a
// known length is a download that somebody watches. Answers of unknown length
// are flushed by copyBody.
func (ex *exchange) Write(p []byte) (int, error) {
	if !ex.wrote.Load() {
		ex.WriteHeader(http.StatusOK)
	}
	n, err := ex.ResponseWriter.Write(p)
	ex.rec.Bytes += int64(n)
	ex.remaining -= int64(n)
	ex.hold.move()
	if err == nil && ex.remaining > 0 && n < copyBufferSize {
		err = http.NewResponseController(ex.ResponseWriter).Flush()
	}
	if err != nil {
		ex.clientGone = true
	}
	return n, err
}

// Hijack implements http.Hijacker; it is called once the upstream has agreed to an
// upgrade.
func (ex *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	ex.handler.upgrades.add(1)
	conn, brw, err := http.NewResponseController(ex.ResponseWriter).Hijack()
	if err != nil {
		ex.handler.upgrades.add(-1)
		return nil, nil, err
	}
	if client, _ := connOf(&ex.ctx); client != nil {
		client.end() // a half-closed connection may still carry an upgrade
		ex.ctx.follow()
	}
	ex.hijacked = true
	ex.wrote.Store(true)
	ex.rec.Status = http.StatusSwitchingProtocols
	ex.decorate()
	return conn, brw, nil
}

// decorate adds the gateway's own headers to an answer.
func (ex *exchange) decorate() {
	h := ex.Header()
	if ex.overHTTP1 && (ex.chunked || ex.body.unread()) {
		// In full duplex net/http would take what follows a broken or unread
		// body for the next request. And a request in chunks may have had a
		// Content-Length too, by which somebody in front of the gateway has found
		// another end: RFC 9112, section 6.1, wants the connection closed, and
		// net/http does not say which it was.
		h.Set("Connection", "close")
	}
	if ex.prefer >= 0 {
		h.Add("Preference-Applied", "wait="+strconv.Itoa(ex.prefer))
	}
	if ex.admitted.IsZero() || ex.route.target.Name == "" {
		return
	}
	b := make([]byte, 0, 40)
	b = append(b, `kgate;desc="queue";dur=`...)
	b = strconv.AppendFloat(b, float64(ex.rec.Wait.Microseconds())/1000, 'f', -1, 64)
	if before := h["Server-Timing"]; len(before) > 0 {
		h["Server-Timing"] = append(before[:len(before):len(before)], string(b))
	} else {
		h["Server-Timing"] = ex.out.value(string(b))
	}
}

// requestBody passes a request's body on as long as its slot may be used, and
// notes how reading the client's body went: a failure of the client
// is not put down to the upstream, and a connection on which some of the body may
// still come carries no further request. The transport reads the body on a
// goroutine of its own.
type requestBody struct {
	io.ReadCloser
	hold          *hold
	trailer       http.Header // filled in when the body ends
	failed, ended atomic.Bool
	read          atomic.Int64 // bytes
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	paced := b.hold.upload.least > 0
	if paced {
		b.hold.upload.begin(time.Since(b.hold.since))
	}
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	if paced {
		b.hold.upload.end(time.Since(b.hold.since), n, err != nil)
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		removeUntrusted(b.trailer, true)
		b.ended.Store(true)
	default:
		b.failed.Store(true)
	}
	b.hold.move()
	if lost := b.hold.check(); lost != nil {
		return 0, lost
	}
	return n, err
}

// unread reports whether the request has a body whose end has not been seen.
func (b *requestBody) unread() bool { return b.ReadCloser != nil && !b.ended.Load() }
