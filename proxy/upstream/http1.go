package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
	"github.com/kgate/kgate/proxy/relay"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// maxFields is how many fields an answer's header may have.
const maxFields = 1000

// trailerLimits are those of the trailer of an answer.
var trailerLimits = http1.Limits{Bytes: 16 << 10, Fields: maxFields}

// maxKeptHeader is the largest buffer for a request's header that a connection
// keeps.
const maxKeptHeader = 16 << 10

// errStale is returned for a kept connection that cannot be used. Nothing was sent.
var errStale = errors.New("the server has spoken first, or has closed the connection")

var errUnasked = errors.New("an answer came before the server had the request")

// http1Conn is a connection that speaks HTTP/1.1. One exchange at a time owns it,
// until it is kept for the next or closed.
type http1Conn struct {
	cfg    *Config
	raw    *conn
	stream net.Conn         // raw, or TLS over it
	keep   func(*http1Conn) // takes it back when it can be used again
	header headerWait
	probe  probe
	in     http1.Input
	head   http1.Head // of the answer that is read
	out    []byte     // the request's header, before it is written
	target []byte     // its target
	since  time.Time  // when it was kept
	reused bool
	unsure bool // the server speaks HTTP/2, and has not said that it speaks HTTP/1.1, too

	// Of the exchange.
	sent    bool   // some of the request may have been sent
	before  uint64 // bytes that were sent before it
	began   bool   // a byte of the answer has been read
	unasked bool   // it had come before the server could have the request
	upload  *upload
	ctx     Context     // the request's, if it is one; else nil
	stop    func() bool // stops watching another context
}

func newHTTP1(cfg *Config, raw *conn, stream net.Conn, keep func(*http1Conn)) *http1Conn {
	h := &http1Conn{cfg: cfg, raw: raw, stream: stream, keep: keep}
	h.header = headerWait{stream, cfg.ResponseHeaderTimeout}
	h.in.Reset(h, max(cfg.MaxHeaderBytes, trailerLimits.Bytes))
	h.probe.of(raw.Conn)
	return h
}

// Read reads from the server for in.
func (h *http1Conn) Read(p []byte) (int, error) {
	n, err := h.stream.Read(p)
	if n > 0 && !h.began {
		h.began = true
		// The next request goes out as an answer ends, so what a server says behind that one is often still on its way.
		h.unasked = h.reused && h.upload == nil && h.probe.waits() && !tcpstate.IsDelivered(h.raw.Conn)
	}
	return n, err
}

// isStale reports whether a kept connection is known to be no longer usable: the server has closed
// it, or has sent something unasked. The request that uses one finds out in any case.
func (h *http1Conn) isStale() bool {
	return h.in.Len() > 0 || tcpstate.HasEnded(h.raw.Conn) || tcpstate.HasUnread(h.raw.Conn)
}

// hasMore reports whether TLS has read more of the server than was asked for. Below TLS that
// does not show.
func (h *http1Conn) hasMore() bool {
	if h.stream == net.Conn(h.raw) {
		return false
	}
	var more [1]byte
	_ = h.stream.SetReadDeadline(time.Unix(1, 0)) // only what is here
	_, err := h.stream.Read(more[:])
	_ = h.stream.SetReadDeadline(time.Time{})
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// own implements exchanger.
func (h *http1Conn) own() net.Conn { return h.raw.Conn }

// unused implements exchanger.
func (h *http1Conn) unused() { h.keep(h) }

// goodbyeTimeout bounds the close_notify of TLS. Crypto/tls waits for up to 5 s.
const goodbyeTimeout = time.Second

// hangUp closes a connection between two exchanges, after a close_notify with TLS.
func (h *http1Conn) hangUp() {
	if h.stream != net.Conn(h.raw) {
		late := time.AfterFunc(goodbyeTimeout, h.raw.reset)
		_ = h.stream.Close()
		late.Stop()
	}
	_ = h.raw.Close()
}

// roundTrip implements exchanger.
func (h *http1Conn) roundTrip(req *Request, caller Caller) (*Response, error) {
	var err error
	if h.out, err = h.appendRequest(h.out[:0], req); err != nil {
		h.unused()
		return nil, err
	}
	h.raw.holdBack(caller)
	h.raw.sender, _ = caller.(Bounded)
	h.sent, h.began, h.unasked, h.upload, h.before = false, false, false, nil, h.raw.sent
	h.attach(req.Context())
	if h.reused {
		h.raw.writes.Begin()
	}
	res, err := h.exchange(req, caller)
	if errors.Is(err, relay.ErrSpoke) {
		h.detach()
		_ = h.raw.Close()
		return nil, errStale
	}
	if err != nil {
		reused, unseen := h.reused && !h.began, h.isUnseen(err)
		err = h.fail(req, caller, err)
		if h.unsure && !errors.As(err, new(*UpgradeError)) {
			err = &UpgradeError{onlyHTTP2, err}
		}
		switch {
		case !isEnd(err):
		case reused:
			err = &deadError{err: err, unseen: unseen}
		case !h.sent:
			err = &DialError{err}
		}
		return nil, err
	}
	return res, nil
}

// isUnseen reports, after an exchange has failed with err, whether the server has not looked at the
// request, of whose body nothing was read. What ends a connection in order says how much of what was
// sent the server's system has; a reset does not.
func (h *http1Conn) isUnseen(err error) bool {
	const syn = 1 // that counts, too
	if !h.sent || h.upload != nil || h.stream != net.Conn(h.raw) || errors.Is(err, syscall.ECONNRESET) {
		return !h.sent
	}
	acked, _ := tcpstate.Acked(h.raw.Conn)
	return acked > 0 && acked <= h.before+syn
}

// breaker breaks an exchange off. What has not been sent yet is dropped. Otherwise the
// system would keep it, and the end of the connection behind it, until the server had
// read what comes before.
type breaker struct{ raw *conn }

// Close implements io.Closer.
func (b breaker) Close() error {
	b.raw.reset()
	return nil
}

// attach breaks the exchange off when ctx ends.
func (h *http1Conn) attach(ctx context.Context) {
	if h.ctx, _ = ctx.(Context); h.ctx != nil {
		h.ctx.Attach(breaker{h.raw})
		return
	}
	h.stop = context.AfterFunc(ctx, h.raw.reset)
}

// detach undoes attach. It reports false if the connection is closed or about to be.
func (h *http1Conn) detach() bool {
	if h.ctx != nil {
		return h.ctx.Detach()
	}
	return h.stop()
}

// exchange writes the request and reads the answer's header.
func (h *http1Conn) exchange(req *Request, caller Caller) (*Response, error) {
	n, err := h.send(req)
	h.sent = err == nil || n > 0 || h.stream != net.Conn(h.raw) // TLS does not say how much went out
	if cap(h.out) > maxKeptHeader {
		h.out = nil
	}
	if err != nil {
		return nil, err
	}
	if hasBody(req) {
		h.upload = newUpload(h, req, caller)
		go h.upload.run()
	}
	for {
		if err := h.readHead(); err != nil {
			return nil, err
		}
		framing, err := h.head.ResponseFraming(req.Method)
		if err != nil {
			return nil, badAnswer(err)
		}
		status := h.head.Status()
		switch {
		case h.unasked:
			return nil, errUnasked
		case framing.Kind == http1.Tunnel:
			h.gotHeader()
			if h.upload != nil && !h.upload.awaitWhole(req.Context()) {
				return nil, errEarlySwitch
			}
			res := newAnswer(h, req, caller, framing)
			res.Body = h.tunnel(caller)
			return res, nil
		case status < 200:
			if h.upload != nil && status == http.StatusContinue {
				h.upload.begin()
			}
			if err := caller.Informational(status, h.head.AppendFields(nil, h.head.Text())); err != nil {
				return nil, err
			}
		default:
			h.gotHeader()
			return newAnswer(h, req, caller, framing), nil
		}
	}
}

// send writes the request's header, which is all of one without a body.
func (h *http1Conn) send(req *Request) (int, error) {
	if hasBody(req) {
		return h.stream.Write(h.out)
	}
	h.header.begin()
	if h.stream != net.Conn(h.raw) {
		return h.stream.Write(h.out)
	}
	return h.raw.ask(h.out)
}

// badAnswer says by which rule an answer was refused.
func badAnswer(err error) error { return fmt.Errorf("the answer is malformed: %w", err) }

// readHead reads the head of the next answer.
func (h *http1Conn) readHead() error {
	h.head.Reset()
	for {
		n, err := h.head.Response(h.in.Buffered(), http1.Limits{Bytes: h.cfg.MaxHeaderBytes, Fields: maxFields})
		switch {
		case err != nil:
			return badAnswer(err)
		case n > 0:
			h.in.Discard(n) // its bytes stay until more is read
			return nil
		}
		if err := h.in.Fill(); err != nil {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
}

// tunnel returns the connection, which continues in another protocol.
func (h *http1Conn) tunnel(caller Caller) *Tunnel {
	early := h.in.Buffered()           // which stays: nothing else is read through in
	_ = h.raw.reads.Settle(h.raw.Conn) // its user reads from the socket
	return &Tunnel{raw: h.raw, stream: h.stream, early: early, release: func() { h.release(caller) }}
}

// gotHeader stops ResponseHeaderTimeout.
func (h *http1Conn) gotHeader() {
	if h.upload != nil {
		h.upload.answered()
	} else {
		h.header.end()
	}
}

// fail ends an exchange that has no answer, and returns why.
func (h *http1Conn) fail(req *Request, caller Caller, err error) error {
	defer h.abandon(caller) // which ends the body: what that leads to is not why
	if h.upload != nil {
		if own := h.upload.failure(); own != nil {
			err = own // the connection was closed for that
		}
	}
	if req.Context().Err() != nil {
		return cause(req.Context())
	}
	return err
}

// abandon breaks an exchange off as breaker does: the server must know before the
// slot is free.
func (h *http1Conn) abandon(caller Caller) {
	h.raw.reset()
	h.release(caller)
}

// release ends the upload of an exchange whose connection is closed.
func (h *http1Conn) release(caller Caller) {
	h.detach()
	if h.upload != nil {
		h.upload.end(caller)
	}
}

// finish ends an exchange whose answer has been read to its end.
func (h *http1Conn) finish(caller Caller, closes bool) {
	// What comes before its request is whole may be the answer to another one.
	upload := h.upload != nil && (h.upload.isEarly() || !h.upload.isWhole())
	if closes || upload || h.in.Len() > 0 || h.hasMore() || !h.detach() {
		if h.detach() {
			_ = h.raw.Close() // the answer was whole: the server need not hear of a failure
		} else {
			h.raw.reset() // breaker does, or is about to
		}
		h.release(caller)
		return
	}
	h.upload, h.ctx, h.stop, h.raw.sender = nil, nil, nil, nil // a kept connection keeps nothing of the exchange
	h.unsure = false
	h.in.Release()
	h.keep(h)
}

// answer is an answer over HTTP/1.1, and its body.
type answer struct {
	Response
	res    http.Response
	room   [12]http1.Field // for Fields; one with more gets its own
	framed http1.Body
	empty  bool // it has no body
	http1  *http1Conn
	caller Caller
	ended  bool
}

// newAnswer returns the answer whose head has been read.
func newAnswer(h *http1Conn, req *Request, caller Caller, f http1.Framing) *Response {
	a := &req.answer
	a.http1, a.caller, a.empty, a.ended = h, caller, f.Kind == http1.None, false
	a.Response.Response = &a.res
	a.Fields = adapt.Response(&a.res, &h.head, f, a.room[:0])
	a.framed.Reset(&h.in, f, trailerLimits)
	a.Request, a.Body = &req.Request, a
	return &a.Response
}

// Read implements io.Reader. At its end the exchange is over.
func (a *answer) Read(p []byte) (int, error) {
	if a.ended {
		return 0, io.EOF
	}
	n, err := a.framed.Read(p)
	if errors.Is(err, io.EOF) {
		a.takeTrailer()
		a.end()
	}
	return n, err
}

// takeTrailer fills in what came behind the body.
func (a *answer) takeTrailer() {
	h := a.framed.Trailer()
	if h == nil {
		return
	}
	if a.Trailer == nil {
		a.Trailer = make(http.Header)
	}
	maps.Copy(a.Trailer, adapt.Trailer(h))
}

// end ends the exchange, whose answer has been read to its end.
func (a *answer) end() {
	a.ended = true
	// A server that tires of a connection says 408 unasked, perhaps as the request comes: what follows answers that.
	a.http1.finish(a.caller, a.Response.Close || a.StatusCode == http.StatusRequestTimeout)
}

// Splice copies the next n bytes of the body from the connection itself to w, so that the
// kernel may do it without this process. Last says that they are all that is left; if not,
// the rest must be copied in the same way. The error is ErrUnsupported if that is not
// possible; then nothing was copied. It may be the error of either side.
func (a *answer) Splice(w io.ReaderFrom, n int64, last bool) (int64, error) {
	h := a.http1
	inTheClear := h.stream == net.Conn(h.raw)
	if a.ended || n > a.framed.Left() || !inTheClear || h.in.Len() > 0 {
		return 0, errors.ErrUnsupported
	}
	if err := h.raw.reads.Settle(h.raw.Conn); err != nil {
		return 0, err
	}
	copied, err := w.ReadFrom(&io.LimitedReader{R: h.raw.Conn, N: n})
	a.framed.Skip(copied)
	switch {
	case err != nil:
		return copied, err
	case copied < n:
		return copied, io.ErrUnexpectedEOF
	case last:
		a.end()
	}
	return copied, nil
}

// Ready reports whether some of the body has been read from the connection.
func (a *answer) Ready() bool { return !a.ended && a.http1.in.Len() > 0 }

// Close implements io.Closer.
func (a *answer) Close() error {
	switch {
	case a.ended:
	case a.empty:
		a.end()
	default:
		a.ended = true
		a.http1.abandon(a.caller)
	}
	return nil
}
