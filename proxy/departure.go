package proxy

import (
	"context"
	"net"
	"net/http"
	"time"
)

// net/http notices that an HTTP/1.1 client has left by reading on from the
// connection, which it can only do once the request's body has been read to its
// end. But here nothing is read before admission, and an upstream may answer
// without ever reading the body: such a client's place in line, or slot, would
// be kept for nobody. So for requests with a body the connection's state is
// asked for now and then, which reads nothing. HTTP/2 needs none of this.
//
// As with net/http, a client that closes its sending side counts as gone.

// departureInterval is how often. It costs a waiting upload two system calls a
// second.
const departureInterval = 500 * time.Millisecond

type connKey struct{}

// withConn is the server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// innermost returns the connection that the kernel knows.
func innermost(conn net.Conn) net.Conn {
	for {
		wrapped, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = wrapped.NetConn()
	}
}

// watchDeparture cancels the context of a request with a body when the client
// closes the connection. The returned function ends the watch; it must be called.
func (ex *exchange) watchDeparture(r *http.Request) (stop func()) {
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
		return func() {}
	}
	conn, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok {
		return func() {}
	}
	var timer *time.Timer
	ready := make(chan struct{}) // the function may run before timer is set
	timer = time.AfterFunc(departureInterval, func() {
		<-ready
		if peerClosed(conn) {
			ex.cancel(nil)
			return
		}
		if ex.ctx.Err() == nil {
			timer.Reset(departureInterval)
		}
	})
	close(ready)
	return func() {
		ex.cancel(nil)
		timer.Stop()
	}
}
