package kgate

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// upload is a request's body that net/http does not have to wait for. A Read of the body of
// a server's request waits for the client, and its Close waits for the Read. Net/http waits
// for both before it resets a stream, and before it returns an error. So another goroutine
// reads.
type upload struct {
	body    io.ReadCloser
	closing sync.Once // of body
	from    *io.PipeReader
	to      *io.PipeWriter
	reading sync.Once
	begun   atomic.Bool
}

// uploadOf returns r's body; nil if there is none, or one that never waits.
func uploadOf(r *http.Request) *upload {
	if r.Body == nil || r.Body == http.NoBody || r.GetBody != nil {
		return nil
	}
	u := &upload{body: r.Body}
	u.from, u.to = io.Pipe()
	return u
}

var uploadBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// read reads the body to its end, or until nobody wants more.
func (u *upload) read() {
	buf := uploadBuffers.Get().(*[32 << 10]byte)
	_, err := io.CopyBuffer(u.to, u.body, buf[:])
	uploadBuffers.Put(buf)
	u.closeBody()
	_ = u.to.CloseWithError(err) // nil: its end
}

func (u *upload) closeBody() { u.closing.Do(func() { _ = u.body.Close() }) }

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	u.reading.Do(func() {
		u.begun.Store(true)
		go u.read()
	})
	return u.from.Read(p)
}

// Close implements io.Closer.
func (u *upload) Close() error {
	u.reading.Do(func() {}) // it is not read any more
	go u.closeBody()        // may wait
	return u.from.Close()
}

// stop ends a Read that waits.
func (u *upload) stop() {
	if u.begun.Load() { // else it may be sent over another connection
		_ = u.from.Close()
	}
}
