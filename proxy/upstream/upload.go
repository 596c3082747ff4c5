package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
	"github.com/kgate/kgate/proxy/tcpstate"
)

const (
	// continueTimeout is how long a body waits for the server to ask for it, if
	// the client sent Expect: 100-continue. Some servers never ask.
	continueTimeout = time.Second
	// wholeTimeout is how long a complete answer waits for the rest of the
	// request's body to be sent, so that the connection can be kept.
	wholeTimeout = 50 * time.Millisecond
	// endLook is how often a server that is silent is looked at, which is seldom needed.
	endLook = 250 * time.Millisecond
)

// headerWait bounds the wait for an answer's header, which begins when the request is whole.
type headerWait struct {
	stream  net.Conn
	timeout time.Duration // 0: none
}

func (w headerWait) begin() {
	if w.timeout > 0 {
		_ = w.stream.SetReadDeadline(time.Now().Add(w.timeout))
	}
}

func (w headerWait) end() {
	if w.timeout > 0 {
		_ = w.stream.SetReadDeadline(time.Time{})
	}
}

// upload sends a request's body while the answer is awaited.
type upload struct {
	conn     *http1Conn
	req      *Request
	asked    chan struct{} // closed when the server wants the body; nil: it is sent at once
	stop     chan struct{} // closed when the body is no longer wanted
	done     chan struct{} // closed when run has returned
	stopOnce sync.Once
	askOnce  sync.Once

	ending atomic.Bool // the last piece is about to be sent

	mu     sync.Mutex
	header bool // the answer's header is there
	early  bool // and was before the last piece
	whole  bool // everything was sent
	err    error
}

func newUpload(h *http1Conn, req *Request, caller Caller) *upload {
	u := &upload{conn: h, req: req, stop: make(chan struct{}), done: make(chan struct{})}
	// A client that does not wait, or no longer waits, has sent some of the body already.
	if req.Fields.HasToken(http1.Expect, "100-continue") && !caller.Sends() {
		u.asked = make(chan struct{})
	}
	return u
}

// begin notes that the server asks for the body.
func (u *upload) begin() {
	if u.asked != nil {
		u.askOnce.Do(func() { close(u.asked) })
	}
}

// answered notes that the answer's header is there. A body that was not asked for
// is not sent.
func (u *upload) answered() {
	if u.asked != nil {
		select {
		case <-u.asked: // run may not have seen it yet
		default:
			u.stopOnce.Do(func() { close(u.stop) })
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.header, u.early = true, !u.ending.Load()
	u.conn.header.end()
}

// isEarly reports whether the answer's header came before the last piece was about to be sent.
func (u *upload) isEarly() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.early
}

// isWhole reports whether the whole body has been sent; it may be about to be.
func (u *upload) isWhole() bool {
	select {
	case <-u.done:
	default:
		timer := time.NewTimer(wholeTimeout)
		defer timer.Stop()
		select {
		case <-u.done:
		case <-timer.C:
			return false
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.whole
}

// errEarlySwitch: the request must be whole before its connection goes on in another protocol
// (RFC 9110, section 7.8).
var errEarlySwitch = &UpgradeError{Detail: "the server goes on in another protocol, and the request is not whole"}

// awaitWhole waits until the whole body has been sent. It reports false if that will not be, or
// when ctx or the server's side of the connection has ended: nobody reads from it.
func (u *upload) awaitWhole(ctx context.Context) bool {
	look := time.NewTicker(endLook)
	defer look.Stop()
	for {
		select {
		case <-u.done:
			return u.isWhole()
		case <-ctx.Done():
			return false
		case <-look.C:
			if tcpstate.HasEnded(u.conn.raw.Conn) {
				return u.isWhole()
			}
		}
	}
}

// end waits for run to return, if the caller can stop the body.
func (u *upload) end(caller Caller) {
	u.stopOnce.Do(func() { close(u.stop) })
	select {
	case <-u.done:
		return
	default:
	}
	if caller.StopUpload() {
		<-u.done
	}
}

// failure returns why the body could not be read, or may not be sent.
func (u *upload) failure() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// errServer marks a failure of the connection. The answer, or the error of reading it,
// says more.
var errServer = errors.New("the server takes no more of the body")

// run sends the body.
func (u *upload) run() {
	defer close(u.done)
	if !u.mayBegin() {
		return
	}
	err := u.send()
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case err == nil:
		u.whole = true
		if !u.header {
			u.conn.header.begin()
		}
	case errors.Is(err, errServer):
		if !u.header {
			u.conn.header.begin()
		}
	default:
		u.err = err
		u.conn.raw.reset() // the request is not whole: the server must not take it for that
	}
}

// mayBegin waits for the server to ask for the body, where it must.
func (u *upload) mayBegin() bool {
	if u.asked == nil {
		return true
	}
	timer := time.NewTimer(continueTimeout)
	defer timer.Stop()
	select {
	case <-u.stop:
		return false
	case <-u.asked:
	case <-timer.C:
	}
	return true
}

const (
	uploadBufferSize = 32 << 10
	lineBreak        = "\r\n"
)

var uploadBuffers = sync.Pool{New: func() any { return new([uploadBufferSize]byte) }}

// send copies the body to the server. A piece is sent as soon as it has come, but the last one of
// a known length with the body's end: over HTTP/2 more may come, or a malformed trailer, and then
// the server must not have the whole request.
func (u *upload) send() error {
	buf := uploadBuffers.Get().(*[uploadBufferSize]byte)
	defer uploadBuffers.Put(buf)
	chunked := isChunked(u.req)
	left := u.req.ContentLength
	for {
		room := buf[http1.ChunkRoom : len(buf)-http1.ChunkEnd]
		n, err := u.req.Body.Read(room)
		left -= int64(n)
		for !chunked && left == 0 && err == nil {
			var more int
			more, err = u.req.Body.Read(buf[:1]) // is for chunks only
			left -= int64(more)
		}
		switch {
		case chunked:
		case left < 0:
			return &InvalidRequestError{fmt.Sprintf("the body is longer than its length of %d", u.req.ContentLength)}
		case left == 0 && !errors.Is(err, io.EOF):
			return err
		}
		if n > 0 {
			piece := room[:n]
			if chunked {
				piece = http1.FrameChunk(buf[:], n)
			}
			u.ending.Store(!chunked && left == 0)
			if werr := u.write(piece); werr != nil {
				return werr
			}
		}
		switch {
		case errors.Is(err, io.EOF) && chunked:
			return u.sendTrailer()
		case errors.Is(err, io.EOF) && left > 0:
			return &InvalidRequestError{fmt.Sprintf("the body is shorter than its length of %d", u.req.ContentLength)}
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// sendTrailer ends a body in chunks. The trailer's values are known by now.
func (u *upload) sendTrailer() error {
	u.ending.Store(true)
	b, err := adapt.Fields(u.req.Trailer).AppendTo([]byte(http1.LastChunk), func(*http1.Field) bool { return false })
	if err != nil {
		return invalid(err)
	}
	return u.write(append(b, lineBreak...))
}

// write sends a piece.
func (u *upload) write(p []byte) error {
	_, err := u.conn.stream.Write(p)
	if err != nil && !errors.Is(err, ErrLapsed) {
		return errServer
	}
	return err
}
