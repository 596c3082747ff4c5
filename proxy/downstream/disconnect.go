package downstream

import (
	"context"
	"sync"
	"time"

	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// A server that reads on from the connection notices that its client has left only once the
// request's body has been read to its end, and only until a byte comes that belongs to no request
// yet: one stray CR, or a pipelined request. Here nothing is read before admission, and an upstream
// may answer without ever reading the body: such a client would keep its place in line, or its
// slot, for nothing.
//
// So the kernel is asked to tell when a client closes its connection
// (disconnect_linux.go). That reads nothing, and costs one system call for each
// connection. HTTP/2 needs none of it: there net/http reads all the time.
//
// A client that closes its sending side counts as gone.

// disconnectPoll is how often the kernel is asked whether the client of a server that
// is not ours has left.
const disconnectPoll = 250 * time.Millisecond

// PollDisconnect tells w when the client leaves whose request has a body that is not
// read yet: the one case in which net/http does not notice. It asks only about
// connections of a server with [ConnContext] that is no [Server]. The returned function
// ends it; it must be called. It may be called twice. Afterwards w is not told any more.
func PollDisconnect(ctx context.Context, r *http1.Request, w Watcher) (stop func()) {
	if r.Major != 1 || r.Body == nil {
		return func() {}
	}
	conn := foreignConn(ctx)
	if conn == nil {
		return func() {}
	}
	var (
		mu    sync.Mutex
		timer *time.Timer
		ended bool
	)
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(disconnectPoll, func() {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case ended:
		case tcpstate.IsEstablished(conn):
			timer.Reset(disconnectPoll)
		default:
			w.ClientLeft()
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		timer.Stop()
	}
}
