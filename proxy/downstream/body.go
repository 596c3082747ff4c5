package downstream

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/kgate/kgate/proxy/http1"
)

// requestBody is the body of a request of HTTP/1. Nothing of it is read before somebody asks, nor
// is the client told to go on.
type requestBody struct {
	answer owner // to the request
	closed atomic.Bool

	mu      sync.Mutex // held while it is read
	body    http1.Body
	expects bool // "Expect: 100-continue", and the client was not told yet
	ended   atomic.Bool
}

// owner is the answer to the request that the body is of.
type owner interface {
	sayContinue()
	gotTrailer(fields http1.Fields)
	connection() *Conn
}

var errBodyClosed = errors.New("downstream: the body was read after its request had ended")

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return 0, errBodyClosed
	}
	if b.expects {
		b.expects = false
		b.answer.sayContinue()
	}
	n, err := b.body.Read(p)
	switch rule := http1.Rule(0); {
	case err == nil, errors.As(err, &rule), errors.Is(err, os.ErrDeadlineExceeded):
	case !errors.Is(err, io.EOF):
		b.answer.connection().on(gotEnd)
	case !b.ended.Load():
		b.ended.Store(true)
		if trailer := b.body.Trailer(); trailer != nil {
			b.answer.gotTrailer(trailer.AppendFields(nil, trailer.Text()))
		}
	}
	return n, err
}

// Close implements io.Closer. What has not been read is the connection's to drop. It does not wait
// for a Read.
func (b *requestBody) Close() error {
	b.closed.Store(true)
	return nil
}

// finish ends its use, and waits for a Read that is under way. It reports whether the body has
// come to its end.
func (b *requestBody) finish() bool {
	if b.closed.Store(true); !b.mu.TryLock() {
		_ = b.answer.connection().SetReadDeadline(longAgo)
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	return b.body.Ended()
}
