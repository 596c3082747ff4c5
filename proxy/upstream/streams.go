package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/proxy/tcpstate"
)

const (
	// closeTimeout is how long a stream may take to close once its exchange is over. After
	// that the connection counts as dead and is closed.
	closeTimeout = 5 * time.Second
	// lookInterval is how often an exchange that is over checks its stream in addition to
	// net/http's state hook, which is not called for a stream that began and ended while
	// the hook ran.
	lookInterval = 5 * time.Millisecond
	// settingsTimeout is how long a new connection waits for the server's SETTINGS.
	settingsTimeout = time.Second
)

// streams is a connection that speaks HTTP/2, and tells when a stream is closed on the
// wire. Net/http's RoundTrip, and Close of an answer's body, return earlier when the
// request's context has ended: the reset is then still to be written, and another
// request may reach the server first. Its methods are safe for concurrent use.
//
// net/http counts a stream (ClientConn.InFlight) from its reservation until it is
// closed on the wire: both sides have ended it, or a reset was written or read. One
// that was reset before anything was heard from the server counts until the server
// has answered a PING that went with the reset. The one gap is between a
// reservation and the request's HEADERS: if the server has lowered its limit
// meanwhile, the request waits uncounted.
//
// exchanges is how many requests of ours the server may know of, those included
// that are over and wait for their streams. An exchange may end only if the others
// account for all streams that are counted, and may still be. Which stream is
// whose does not matter.
type streams struct {
	*http.ClientConn
	raw  *conn
	read atomic.Int64 // bytes, until now

	mu        sync.Mutex
	exchanges int
	unopened  int  // of them, those whose HEADERS have not been written
	leaving   bool // the connection closes with its last exchange

	changes changes
}

// changes signals that a stream may have closed. It has its own lock because
// net/http calls notify from within Reserve.
type changes struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next change; nil: nobody waits
}

func (c *changes) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// wait returns a channel that is closed at the next change.
func (c *changes) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// dialledKey is the key of a context's connection that newStreams takes.
type dialledKey struct{}

// newStreams starts HTTP/2 on stream, which is raw or TLS over it. Tr is of newHTTP2Transport. If it
// fails it leaves stream open.
//
// It waits for the server's SETTINGS, which tell how many streams the server allows.
// Net/http counts on 100 before, and then lets requests that are too many wait until
// others end, where another connection would serve them at once.
func newStreams(ctx context.Context, tr *http.Transport, address string, raw *conn, stream net.Conn) (*streams, error) {
	s := &streams{raw: raw}
	first := &firstFrames{Conn: stream, streams: s, taken: make(chan struct{})}
	cc, err := tr.NewClientConn(context.WithValue(ctx, dialledKey{}, first), "http", address)
	if err != nil {
		return nil, err
	}
	s.ClientConn = cc
	cc.SetStateHook(func(*http.ClientConn) { s.notify() })
	late := time.NewTimer(settingsTimeout)
	defer late.Stop()
	select {
	case <-first.taken:
	case <-late.C:
	case <-ctx.Done():
		_ = cc.Close()
		return nil, context.Cause(ctx)
	}
	return s, nil
}

// firstFrames is a connection that tells when its first frames have been taken: SETTINGS
// come first. It counts what is read.
type firstFrames struct {
	net.Conn
	streams *streams
	taken   chan struct{}
	reads   int // up to 2
}

// Close implements net.Conn. Net/http closes in order, also when it aborts requests: the
// system would go on to send what it has of them, with their exchanges over.
func (f *firstFrames) Close() error {
	if !f.streams.endsInOrder() {
		f.streams.raw.reset() // before TLS, which waits to say goodbye
	}
	return f.Conn.Close()
}

// Read implements net.Conn. It is called on one goroutine, which has taken what it has
// read when it comes again.
func (f *firstFrames) Read(p []byte) (int, error) {
	if f.reads < 2 {
		if f.reads++; f.reads == 2 {
			close(f.taken)
		}
	}
	n, err := f.Conn.Read(p)
	f.streams.read.Add(int64(n))
	if err != nil && f.reads == 1 {
		f.reads = 2
		close(f.taken)
	}
	return n, err
}

// notify has exchanges that are over look for their streams: the socket was closed.
func (s *streams) notify() { s.changes.notify() }

// begin counts a request and reports whether the connection can take it.
func (s *streams) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving || s.Reserve() != nil {
		return false
	}
	s.exchanges++
	s.unopened++
	return true
}

// unused ends a request that begin has counted and nobody makes.
func (s *streams) unused() {
	s.Release()
	s.opened()
	s.end()
}

// opened notes that a request's HEADERS have been written, or never will be.
func (s *streams) opened() {
	s.mu.Lock()
	s.unopened--
	s.mu.Unlock()
	s.notify()
}

// end returns when a request's stream is closed, or the connection. The request was
// cancelled, or its answer's body closed, and opened was called for it.
func (s *streams) end() {
	began := time.Now()
	for {
		changed := s.changes.wait() // before the look: what happens after it is seen
		if s.tryEnd() {
			s.notify()
			return
		}
		if time.Since(began) > closeTimeout {
			s.raw.reset()
			continue
		}
		again := time.NewTimer(lookInterval)
		select {
		case <-changed:
		case <-again.C:
		}
		again.Stop()
	}
}

// tryEnd stops counting the exchange if its stream is closed.
func (s *streams) tryEnd() bool {
	dead := s.raw.isClosed()
	if !dead && s.Err() != nil && !s.endsInOrder() {
		dead = true
		s.raw.reset() // net/http is about to
	}
	s.mu.Lock()
	if !dead && s.InFlight() >= s.exchanges-s.unopened {
		s.mu.Unlock()
		return false
	}
	s.exchanges--
	// Where the server takes no more, net/http closes the connection with its last stream, but not
	// if the last request got none.
	leaves := s.leaving || s.exchanges == 0 && s.Available() == 0
	s.mu.Unlock()
	if leaves {
		s.closeIfIdle()
	}
	return true
}

// endsInOrder reports whether nothing is aborted when the connection is closed: no request
// uses it, or the streams have ended and the server has what was written of them.
func (s *streams) endsInOrder() bool {
	s.mu.Lock()
	idle := s.exchanges == 0 // as while newStreams runs: there may be no ClientConn yet
	s.mu.Unlock()
	return idle || s.InFlight() == 0 && tcpstate.IsDelivered(s.raw.Conn)
}

// closeIfIdle closes the connection if no request uses it.
func (s *streams) closeIfIdle() {
	s.mu.Lock()
	idle := s.exchanges == 0
	s.leaving = s.leaving || idle // none begins meanwhile
	s.mu.Unlock()
	if idle {
		_ = s.Close()
		s.raw.reset()
	}
}

// leave closes the connection once no request uses it, and lets it take no others.
func (s *streams) leave() {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	s.closeIfIdle()
}

// exchange is a request, and the body of its answer.
type exchange struct {
	io.ReadCloser
	streams *streams
	cancel  context.CancelFunc
	stop    func() // ends a Read of the request's body that waits

	written    atomic.Bool // the whole request
	heard      atomic.Bool // the server has begun to answer: it has looked at the request
	open, over sync.Once
}

// do makes the request, and calls what trace has.
func (x *exchange) do(req *http.Request, trace *httptrace.ClientTrace) (*http.Response, error) {
	var ctx context.Context
	ctx, x.cancel = context.WithCancel(req.Context())
	trace.WroteHeaders = x.opened
	trace.GotFirstResponseByte = func() { x.heard.Store(true) }
	x.written.Store(req.Body == nil || req.Body == http.NoBody)
	trace.WroteRequest = func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			x.written.Store(true)
		}
	}
	res, err := x.streams.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	x.opened() // net/http checks for cancellation before it writes
	if err != nil {
		x.end()
		if saysUnseen(err) && !x.heard.Load() {
			err = unseenError{err}
		}
		return nil, err
	}
	x.ReadCloser, res.Body = res.Body, x
	return res, nil
}

func (x *exchange) opened() { x.open.Do(x.streams.opened) }

// end returns when the stream is closed.
func (x *exchange) end() {
	x.over.Do(func() {
		if !x.written.Load() {
			x.stop()
		}
		x.cancel()
		x.streams.end()
	})
}

// Read implements io.Reader. At the answer's end the exchange is over, unless the request
// goes on.
func (x *exchange) Read(p []byte) (int, error) {
	n, err := x.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && x.written.Load() {
		x.end()
	}
	return n, err
}

// Close implements io.Closer. When it returns the stream is closed on the wire.
func (x *exchange) Close() error {
	x.cancel() // or net/http would wait for the request
	err := x.ReadCloser.Close()
	x.end()
	return err
}
