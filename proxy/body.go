package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/proxy/http1"
)

// requestBody passes a request's body on as long as its slot may be used, and
// notes how reading the client's body went: a failure of the client
// is not blamed on the upstream, and a connection on which some of the body may
// still come carries no further request. Package upstream reads the body on a
// goroutine of its own.
type requestBody struct {
	ex            *exchange   // nil: there is none, or it is not forwarded
	trailer       http.Header // of the request that goes on: the names that it announces
	failed, ended atomic.Bool
	read          atomic.Int64 // bytes
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	may, _ := b.ex.hold.up.take(len(p)) // where it fails, so does what follows
	if may > 0 {
		p = p[:may]
	}
	rated := b.ex.hold.upload.over > 0
	if rated {
		b.ex.hold.upload.begin(time.Since(b.ex.hold.since))
	}
	n, err := b.ex.request.Body.Read(p)
	b.read.Add(int64(n))
	b.ex.hold.up.unused(may - n)
	if rated {
		b.ex.hold.upload.end(time.Since(b.ex.hold.since), n, err != nil)
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		for _, f := range b.ex.request.Trailer {
			if values, announced := b.trailer[f.Name]; announced {
				b.trailer[f.Name] = append(values, f.Value)
			}
		}
		b.ended.Store(true)
	default:
		b.failed.Store(true)
	}
	b.ex.hold.move()
	if lost := b.ex.hold.check(); lost != nil {
		return 0, lost
	}
	return n, err
}

// unread reports whether the request has a body whose end has not been seen.
func (b *requestBody) unread() bool { return b.ex != nil && !b.ended.Load() }

// Close implements io.Closer.
func (b *requestBody) Close() error { return b.ex.request.Body.Close() }

// unreadBody is an HTTP/1 request's body that has not been forwarded. net/http
// waits for its end before it sends the header of an answer, and for ever; an
// answer of the gateway's own is not to depend on that.
type unreadBody struct {
	request *http1.Request // nil: it has none, or it has been forwarded
	expects bool           // reading it would tell the client to go on
	ended   bool           // its end has come; net/http then reads on from the connection
	open    bool           // an answer has been given, and its end has not come
}

func newUnreadBody(r *http1.Request) unreadBody {
	if r.Major != 1 || r.Body == nil {
		return unreadBody{}
	}
	return unreadBody{request: r, expects: r.Fields.Has(http1.Expect)}
}

// Read implements io.Reader.
func (b *unreadBody) Read(p []byte) (int, error) {
	n, err := b.request.Body.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// Close implements io.Closer.
func (b *unreadBody) Close() error { return b.request.Body.Close() }
