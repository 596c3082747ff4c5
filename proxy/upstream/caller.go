package upstream

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/kgate/kgate/proxy/http1"
)

// Caller is who makes a request. Its methods are called until
// RoundTrip has failed, or Close of the answer's body has returned; Informational
// until RoundTrip has returned.
type Caller interface {
	// Check is called after a connection was chosen and before anything is
	// handed to it. Its error ends the request.
	Check() error
	// Connected is called before the request is written to a connection, which has
	// carried others if it is reused. conn is nil if it carries others meanwhile.
	Connected(conn net.Conn, reused bool)
	// Informational takes each answer of status 100 to 199 except 101. Its error
	// ends the request.
	Informational(status int, fields http1.Fields) error
	// Sends reports whether the client is known to send the request's body without
	// being told to go on.
	Sends() bool
	// StopUpload unblocks a Read of the request's body that waits for the client.
	// It reports false if that is not possible.
	StopUpload() bool
}

// Bounded may be implemented by a Caller whose right to send can end before the standing
// does. Over HTTP/1.1 it is asked right before each system call that sends.
type Bounded interface {
	// MaySend must not close the connection: it is called with its lock held.
	MaySend() bool
}

// Context may be implemented by the context of a request. An HTTP/1.1 exchange
// then does without context.AfterFunc, which costs more.
type Context interface {
	context.Context
	// Attach closes c when the context ends, or at once if it has ended, unless
	// Detach is called first. Only one Closer is attached at a time.
	Attach(c io.Closer)
	// Detach undoes Attach. It reports false if the Closer is closed, or about to be.
	Detach() bool
	// Cause returns what context.Cause would.
	Cause() error
}

// cause returns why ctx has ended.
func cause(ctx context.Context) error {
	if c, ok := ctx.(Context); ok {
		return c.Cause()
	}
	return context.Cause(ctx)
}

func hasBody(req *Request) bool { return req.Body != nil && req.Body != http.NoBody }
