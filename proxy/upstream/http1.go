package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/kgate/kgate/internal/httphead"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// trailerSize is the size of a connection's buffer: net/http takes trailers that fit.
const trailerSize = 16 << 10

// maxKeptHeader is the largest buffer for a request's header that a connection
// keeps.
const maxKeptHeader = 16 << 10

var (
	errHeaderTooLarge = errors.New("upstream: the header of the answer is too large")
	errUnasked        = errors.New("upstream: an answer came before the server had the request")
	errCodedIn10      = errors.New("upstream: the answer is of HTTP/1.0 and has Transfer-Encoding: nobody knows where it ends")
)

// http1 is a connection that speaks HTTP/1.1. One exchange at a time owns it,
// until it is kept for the next or closed.
type http1 struct {
	cfg    *Config
	raw    *conn
	stream net.Conn     // raw, or TLS over it
	keep   func(*http1) // takes it back when it can be used again
	header headerWait
	probe  probe
	br     *bufio.Reader
	out    []byte    // the request's header, before it is written
	names  []string  // of its fields, while they are sorted
	since  time.Time // when it was kept
	reused bool
	unsure bool // the server speaks HTTP/2, and has not said that it speaks HTTP/1.1, too

	// Of the exchange.
	allowed int64 // bytes of header that may still be read; negative: no bound
	began   bool  // a byte of the answer has been read
	unasked bool  // it had come before the server could have the request
	head    httphead.Scan
	upload  *upload
	ctx     Context     // the request's, if it is one; else nil
	stop    func() bool // stops watching another context
}

func newHTTP1(cfg *Config, raw *conn, stream net.Conn, keep func(*http1)) *http1 {
	h := &http1{cfg: cfg, raw: raw, stream: stream, keep: keep, allowed: -1}
	h.header = headerWait{stream, cfg.ResponseHeaderTimeout}
	h.br = bufio.NewReaderSize(h, trailerSize)
	h.probe.of(raw.Conn)
	return h
}

// Read reads from the server for br.
func (h *http1) Read(p []byte) (int, error) {
	if h.allowed == 0 {
		return 0, errHeaderTooLarge
	}
	if h.allowed > 0 && int64(len(p)) > h.allowed {
		p = p[:h.allowed]
	}
	n, err := h.stream.Read(p)
	if h.allowed > 0 {
		h.allowed -= int64(n)
	}
	if n > 0 && !h.began {
		h.began = true
		h.unasked = h.reused && h.upload == nil && !tcpstate.IsDelivered(h.raw.Conn)
	}
	h.head.Read(p[:n])
	return n, err
}

// stale reports whether a kept connection is no longer usable: the server has
// closed it, or sent something unasked.
func (h *http1) stale() bool { return h.br.Buffered() > 0 || h.probe.readable() }

// hasMore reports whether TLS has read more of the server than was asked for. Below TLS that
// does not show.
func (h *http1) hasMore() bool {
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
func (h *http1) own() net.Conn { return h.raw.Conn }

// unused implements exchanger.
func (h *http1) unused() { h.keep(h) }

// goodbyeTimeout bounds the close_notify of TLS. Crypto/tls waits for up to 5 s.
const goodbyeTimeout = time.Second

// hangUp closes a connection between two exchanges, after a close_notify with TLS.
func (h *http1) hangUp() {
	if h.stream != net.Conn(h.raw) {
		late := time.AfterFunc(goodbyeTimeout, h.raw.reset)
		_ = h.stream.Close()
		late.Stop()
	}
	_ = h.raw.Close()
}

// roundTrip implements exchanger.
func (h *http1) roundTrip(req *http.Request, caller Caller) (*http.Response, error) {
	var err error
	if h.out, err = h.appendRequest(h.out[:0], req); err != nil {
		h.unused()
		return nil, err
	}
	h.raw.holdBack(caller)
	h.raw.sender, _ = caller.(Bounded)
	h.began, h.unasked, h.upload = false, false, nil
	h.head.Reset()
	h.attach(req.Context())
	res, err := h.exchange(req, caller)
	if err != nil {
		reused := h.reused && !h.began
		err = h.fail(req, caller, err)
		if h.unsure && !errors.As(err, new(*UpgradeError)) {
			err = &UpgradeError{onlyHTTP2, err}
		}
		if reused && isEnd(err) {
			err = &deadError{err: err}
		}
		return nil, err
	}
	return res, nil
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
func (h *http1) attach(ctx context.Context) {
	if h.ctx, _ = ctx.(Context); h.ctx != nil {
		h.ctx.Attach(breaker{h.raw})
		return
	}
	h.stop = context.AfterFunc(ctx, h.raw.reset)
}

// detach undoes attach. It reports false if the connection is closed or about to be.
func (h *http1) detach() bool {
	if h.ctx != nil {
		return h.ctx.Detach()
	}
	return h.stop()
}

// exchange writes the request and reads the answer's header.
func (h *http1) exchange(req *http.Request, caller Caller) (*http.Response, error) {
	_, err := h.stream.Write(h.out)
	if cap(h.out) > maxKeptHeader {
		h.out = nil
	}
	if err != nil {
		return nil, err
	}
	if hasBody(req) {
		h.upload = newUpload(h, req, caller)
		go h.upload.run()
	} else {
		h.header.begin()
	}
	for {
		h.allowed = max(0, int64(h.cfg.MaxHeaderBytes-h.br.Buffered()))
		res, err := http.ReadResponse(h.br, req)
		h.allowed = -1
		if err != nil {
			return nil, err
		}
		switch {
		case h.unasked:
			return nil, errUnasked
		case !res.ProtoAtLeast(1, 1) && h.head.Coded(): // net/http does not mind
			return nil, errCodedIn10
		case res.StatusCode < 100:
			return nil, fmt.Errorf("upstream: the answer has status %d", res.StatusCode)
		case res.StatusCode == http.StatusSwitchingProtocols:
			h.gotHeader()
			if h.upload != nil && !h.upload.awaitWhole(req.Context()) {
				return nil, errEarlySwitch
			}
			res.Body = h.tunnel(caller)
			return res, nil
		case res.StatusCode < 200:
			next, _ := h.br.Peek(h.br.Buffered())
			h.head.Reset()
			h.head.Read(next)
			if h.upload != nil && res.StatusCode == http.StatusContinue {
				h.upload.begin()
			}
			if err := caller.Informational(res.StatusCode, res.Header); err != nil {
				return nil, err
			}
		default:
			h.gotHeader()
			res.Body = &answer{ReadCloser: res.Body, http1: h, caller: caller, closes: res.Close || h.head.Coded() && h.head.Sized()}
			return res, nil
		}
	}
}

// tunnel returns the connection, which continues in another protocol.
func (h *http1) tunnel(caller Caller) *Tunnel {
	early, _ := h.br.Peek(h.br.Buffered())
	_ = h.raw.reads.Settle(h.raw.Conn) // its user reads from the socket
	return &Tunnel{raw: h.raw, stream: h.stream, early: early, release: func() { h.release(caller) }}
}

// gotHeader stops ResponseHeaderTimeout.
func (h *http1) gotHeader() {
	if h.upload != nil {
		h.upload.answered()
	} else {
		h.header.end()
	}
}

// fail ends an exchange that has no answer, and returns why.
func (h *http1) fail(req *http.Request, caller Caller, err error) error {
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
func (h *http1) abandon(caller Caller) {
	h.raw.reset()
	h.release(caller)
}

// release ends the upload of an exchange whose connection is closed.
func (h *http1) release(caller Caller) {
	h.detach()
	if h.upload != nil {
		h.upload.end(caller)
	}
}

// finish ends an exchange whose answer has been read to its end.
func (h *http1) finish(caller Caller, closes bool) {
	// What comes before its request is whole may be the answer to another one.
	upload := h.upload != nil && (h.upload.isEarly() || !h.upload.isWhole())
	if closes || upload || h.br.Buffered() > 0 || h.hasMore() || !h.detach() {
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
	h.keep(h)
}

// answer is the body of an answer.
type answer struct {
	io.ReadCloser // never closed: it would read to the end
	http1         *http1
	caller        Caller
	closes        bool // the connection ends with it
	ended         bool
}

// Read implements io.Reader. At its end the exchange is over.
func (a *answer) Read(p []byte) (int, error) {
	if a.ended {
		return 0, io.EOF
	}
	n, err := a.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		a.ended = true
		a.http1.finish(a.caller, a.closes)
	}
	return n, err
}

// Splice copies the next n bytes of the body from the connection itself to w, so that the
// kernel may do it without this process. Last says that they are all that is left; if not,
// the rest must be copied in the same way. The error is ErrUnsupported if that is not
// possible; then nothing was copied. It may be the error of either side.
func (a *answer) Splice(w io.ReaderFrom, n int64, last bool) (int64, error) {
	h := a.http1
	inTheClear := h.stream == net.Conn(h.raw)
	if a.ended || a.ReadCloser == http.NoBody || !inTheClear || h.br.Buffered() > 0 {
		return 0, errors.ErrUnsupported
	}
	if err := h.raw.reads.Settle(h.raw.Conn); err != nil {
		return 0, err
	}
	copied, err := w.ReadFrom(&io.LimitedReader{R: h.raw.Conn, N: n})
	switch {
	case err != nil:
		return copied, err
	case copied < n:
		return copied, io.ErrUnexpectedEOF
	case last:
		a.ended = true
		h.finish(a.caller, a.closes)
	}
	return copied, nil
}

// Ready reports whether some of the body has been read from the connection.
func (a *answer) Ready() bool { return !a.ended && a.http1.br.Buffered() > 0 }

// Close implements io.Closer.
func (a *answer) Close() error {
	if a.ended {
		return nil
	}
	a.ended = true
	if a.ReadCloser == http.NoBody {
		a.http1.finish(a.caller, a.closes)
	} else {
		a.http1.abandon(a.caller)
	}
	return nil
}
