package kgate

import (
	"io"
	"sync"
)

// upload is a request's body for which nobody has to wait. A Read of the body of
// a server's request waits for the client, and its Close waits for the Read. The end of a request waits
// for both. So another goroutine reads.
type upload struct {
	body    io.ReadCloser
	reading sync.Once
	closing sync.Once // of body
	from    *io.PipeReader
	to      *io.PipeWriter
}

func newUpload(body io.ReadCloser) *upload {
	u := &upload{body: body}
	u.from, u.to = io.Pipe()
	return u
}

// read reads the body to its end, or until nobody wants more.
func (u *upload) read() {
	_, err := io.Copy(u.to, u.body)
	u.closeBody()
	_ = u.to.CloseWithError(err) // nil: its end
}

func (u *upload) closeBody() { u.closing.Do(func() { _ = u.body.Close() }) }

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	u.reading.Do(func() { go u.read() })
	return u.from.Read(p)
}

// Close implements io.Closer. It ends a Read that waits.
func (u *upload) Close() error {
	u.reading.Do(func() {}) // it is not read any more
	go u.closeBody()        // may wait
	return u.from.Close()
}
