package kgate

import (
	"io"
	"net/http"
	"sync"
)

// Limit returns a RoundTripper whose requests each wait for a slot of the pool, as long as their
// contexts last, and go over base; if it is nil, over [Node.Transport]. Any other base hears of a
// lost slot by the request's context only. The slot is given back when the answer's body is closed,
// or was read to its end and the request has no body: close it.
func (n *Node) Limit(pool string, base http.RoundTripper, options ...Option) http.RoundTripper {
	if base == nil {
		base = n.Transport(nil)
	}
	return &limited{node: n, pool: pool, options: options, base: base}
}

type limited struct {
	node    *Node
	pool    string
	options []Option
	base    http.RoundTripper
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
	res, err := l.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		body.release()
		return nil, err
	}
	body.ReadCloser = res.Body
	stream, isStream := res.Body.(io.ReadWriteCloser)
	switch {
	case isStream && res.StatusCode == http.StatusSwitchingProtocols:
		res.Body = &limitedStream{body, stream}
	case body.atEnd && res.Body == http.NoBody: // it may never be closed
		body.release()
	default:
		res.Body = body
	}
	return res, nil
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (l *limited) CloseIdleConnections() {
	(&http.Client{Transport: l.base}).CloseIdleConnections()
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
