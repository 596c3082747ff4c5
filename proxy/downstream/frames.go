package downstream

import (
	"net"
	"time"
)

// frameTimer bounds the time that an HTTP/2 client takes for one frame, or for a
// header and its continuations. net/http bounds a header's time in HTTP/1 alone:
// half a HEADERS frame would keep its connection until that has been idle for too
// long, or for ever if a request is in progress on it.
//
// It counts the frames of what is read, and sets the connection's read deadline
// while one is incomplete. DATA frames have no limit here: how slowly a body may
// come is the pool's to say (hold.min_upload, hold.idle).
//
// It is for the reader of the connection: one goroutine at a time.
type frameTimer struct {
	limit time.Duration

	preface int // bytes of the connection preface that have been read
	header  [frameHeaderLen]byte
	have    int  // bytes of the frame's header that have been read
	payload int  // bytes of its payload that have not
	block   bool // a header has begun whose last frame has not
	timed   bool // the read deadline is set, for the present frame or header
}

// What RFC 9113 says of frames: their layout (4.1), types and flags (6), and what a client
// sends before them (3.4).
const (
	frameHeaderLen    = 9
	frameData         = 0x0
	frameHeaders      = 0x1
	frameContinuation = 0x9
	flagEndHeaders    = 0x4
	clientPreface     = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

// read looks at what has been read from conn.
func (f *frameTimer) read(conn net.Conn, p []byte) {
	if len(p) == 0 {
		return
	}
	was := f.timed
	f.count(p)
	switch incomplete := f.incomplete(); {
	case incomplete && !f.timed:
		f.timed = true
		_ = conn.SetReadDeadline(time.Now().Add(f.limit)) // if it fails, so does the next read
	case !incomplete && was:
		f.timed = false
		_ = conn.SetReadDeadline(time.Time{})
	}
}

// incomplete reports whether a frame that is timed, or a header, has begun and not
// ended.
func (f *frameTimer) incomplete() bool {
	data := f.have == frameHeaderLen && f.header[3] == frameData
	return f.block || f.have > 0 && !data
}

func (f *frameTimer) count(p []byte) {
	for len(p) > 0 {
		switch {
		case f.preface < len(clientPreface):
			n := min(len(p), len(clientPreface)-f.preface)
			f.preface += n
			p = p[n:]
		case f.have < frameHeaderLen:
			n := copy(f.header[f.have:], p)
			f.have += n
			p = p[n:]
			if f.have == frameHeaderLen {
				f.begin()
			}
		default:
			n := min(len(p), f.payload)
			f.payload -= n
			p = p[n:]
		}
		if f.have == frameHeaderLen && f.payload == 0 {
			f.have = 0
			f.timed = f.timed && f.block // the next one has its own time
		}
	}
}

// begin looks at a frame's header.
func (f *frameTimer) begin() {
	f.payload = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
	last := f.header[4]&flagEndHeaders != 0
	switch f.header[3] {
	case frameHeaders:
		f.block = !last
	case frameContinuation:
		f.block = f.block && !last
	}
}
