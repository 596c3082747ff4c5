package proxy

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"sync/atomic"
	"time"
)

// requestBody passes a request's body on as long as its slot may be used, and
// notes how reading the client's body went: a failure of the client
// is not blamed on the upstream, and a connection on which some of the body may
// still come carries no further request. Package upstream reads the body on a
// goroutine of its own.
type requestBody struct {
	io.ReadCloser // nil: there is none
	ex            *exchange
	announced     http.Header // the names of its trailer; net/http fills in others, too
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
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	b.ex.hold.up.unused(may - n)
	if rated {
		b.ex.hold.upload.end(time.Since(b.ex.hold.since), n, err != nil)
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		maps.DeleteFunc(b.ex.request.Trailer, func(name string, _ []string) bool {
			_, announced := b.announced[name]
			return !announced
		})
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
func (b *requestBody) unread() bool { return b.ReadCloser != nil && !b.ended.Load() }

// unreadBody is an HTTP/1 request's body that has not been forwarded. net/http
// waits for its end before it sends the header of an answer, and for ever; an
// answer of the gateway's own is not to depend on that.
type unreadBody struct {
	io.ReadCloser      // nil: the request has none, or it has been forwarded
	expects       bool // reading it would tell the client to go on
	ended         bool // its end has come; net/http then reads on from the connection
	open          bool // an answer has been given, and its end has not come
}

func newUnreadBody(r *http.Request) unreadBody {
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
		return unreadBody{}
	}
	return unreadBody{ReadCloser: r.Body, expects: r.Header.Get("Expect") != ""}
}

// Read implements io.Reader.
func (b *unreadBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}
