package proxy

import (
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
)

// A slot may only be released once the upstream connection of a broken-off
// answer is closed. net/http's transport closes it by itself, but on a
// goroutine that may come after the release, so that for a moment the upstream
// could have k+1 open requests. Here the connection is closed first.
//
// Over HTTP/2 the connection belongs to other requests as well; there the
// stream is reset by the transport, which is as much as can be had.

// slotTransport tells each exchange the connection it uses.
type slotTransport struct {
	*http.Transport
}

// RoundTrip implements http.RoundTripper. The reverse proxy has given the
// request a trace of its own: adding to that one saves composing two.
func (t slotTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn == nil {
		trace.GotConn = exchangeOf(req).answer.gotConn
	}
	return t.Transport.RoundTrip(req)
}

// answerBody is the upstream's body and the connection that it comes over.
type answerBody struct {
	io.ReadCloser // nil: no answer with a body
	conn          net.Conn
	ended         bool
}

func (b *answerBody) gotConn(info httptrace.GotConnInfo) { b.conn = info.Conn }

// Read implements io.Reader.
func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { //nolint:errorlint // net/http's bodies return io.EOF itself
		b.ended = true
	}
	return n, err
}

// wrap puts b around the body of res, if it has one that holds the connection.
func (b *answerBody) wrap(res *http.Response) {
	if res.ProtoMajor == 1 && res.Body != http.NoBody {
		b.ReadCloser = res.Body
		res.Body = b
	}
}

// abandon closes the connection, unless the body has come to its end: then the
// connection may already serve another request.
func (b *answerBody) abandon() {
	if b.ReadCloser == nil || b.ended || b.conn == nil {
		return
	}
	conn := b.conn
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS would first say goodbye
		conn = wrapped.NetConn()
	}
	_ = conn.Close() // the transport closes it too, in its own time
}
