package kgate

import (
	"io"
	"net/http"
	"sync"

	"github.com/kgate/kgate/proxy/upstream"
)

// Limit returns a RoundTripper whose requests each wait for a slot of the pool, as long as their
// contexts last, and are sent as [Node.Transport] sends them, over a copy of base. The slot is
// given back when the answer's body is closed, or was read to its end and the request has no body:
// close it.
func (n *Node) Limit(pool string, base *http.Transport, options ...Option) http.RoundTripper {
	return &limited{node: n, pool: pool, options: options, fenced: n.Transport(base)}
}

type limited struct {
	node    *Node
	pool    string
	options []Option
	fenced  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	slot, err := l.node.Acquire(r.Context(), l.pool, l.options...)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := slot.Context(r.Context())
	body := &limitedBody{atEnd: r.Body == nil || r.Body == http.NoBody, release: sync.OnceFunc(func() {
		slot.Release()
		cancel()
	})}
	res, err := l.fenced.RoundTrip(r.WithContext(ctx))
	if err != nil {
		body.release()
		return nil, err
	}
	if body.atEnd && upstream.IsEmpty(res.Body) { // it may never be closed
		body.release()
		return res, nil
	}
	body.ReadCloser = res.Body
	if stream, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		res.Body = &limitedStream{body, stream}
	} else {
		res.Body = body
	}
	return res, nil
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (l *limited) CloseIdleConnections() {
	(&http.Client{Transport: l.fenced}).CloseIdleConnections()
}

// limitedBody gives the slot back at its end.
type limitedBody struct {
	io.ReadCloser
	atEnd   bool // of the answer; a body of the request may still be on its way then
	release func()
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.atEnd {
		b.release()
	}
	return n, err
}

// Close implements io.Closer.
func (b *limitedBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// limitedStream is the body of an answer with status 101: the connection, both ways. Its end is
// its Close: the other side may only have stopped to send.
type limitedStream struct {
	*limitedBody
	stream io.ReadWriteCloser
}

// Read implements io.Reader.
func (s *limitedStream) Read(p []byte) (int, error) { return s.stream.Read(p) }

// Write implements io.Writer.
func (s *limitedStream) Write(p []byte) (int, error) { return s.stream.Write(p) }
