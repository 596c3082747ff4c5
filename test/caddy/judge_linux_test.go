package caddy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
)

// streams counts, at an upstream that speaks HTTP/2, the streams that are open: from their
// HEADERS until both sides have ended them, or one has reset them. The upstream has ended a
// stream when it is about to say so.
//
// It reads the resets of different connections in any order. So when it counts more than k,
// it counts again what was open then: not a stream whose reset a gateway had written, nor one
// of a connection that it had closed.
type streams struct {
	k int

	mu    sync.Mutex
	open  map[*stream]struct{}
	most  int // that were open at once, k included
	total int
	again sync.WaitGroup // counts
}

// stream is one of a connection.
type stream struct {
	conn           *counted
	client, server bool // has ended its side
	// How many bytes of the connection had come when the client had reset the stream, or
	// ended its side; 0: not yet.
	resetAt, endedAt int64
}

// counted is a connection that knows how far its reader has come. A Read goes no further
// than one frame, or record of TLS, so that it is known where in the connection that was.
type counted struct {
	*net.TCPConn
	split    splitter
	taken    atomic.Int64 // bytes
	settled  atomic.Int64 // of them, what the reader has dealt with
	finished atomic.Bool
}

// Read implements net.Conn.
func (c *counted) Read(p []byte) (int, error) {
	c.settled.Store(c.taken.Load())
	n, err := c.TCPConn.Read(p[:min(len(p), c.split.most())])
	c.split.feed(p[:n], nil)
	c.taken.Add(int64(n))
	if err != nil {
		c.finished.Store(true)
	}
	return n, err
}

// sent returns how many bytes the other side has written to the connection, sent or not;
// false: it has closed it. A busy system may deliver what was written to two connections in
// another order, so it is not the upstream's side that tells what a gateway has ended.
func (c *counted) sent() (bytes int64, open bool) {
	const (
		byFamily = 20 // SOCK_DIAG_BY_FAMILY
		withInfo = 2  // INET_DIAG_INFO
		msgLen   = 16 + 72
	)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, true
	}
	defer unix.Close(fd)
	from, to := c.RemoteAddr().(*net.TCPAddr), c.LocalAddr().(*net.TCPAddr)
	var req [16 + 56]byte
	binary.NativeEndian.PutUint32(req[0:], uint32(len(req)))
	binary.NativeEndian.PutUint16(req[4:], byFamily)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST)
	req[16], req[17], req[18] = unix.AF_INET, unix.IPPROTO_TCP, 1<<(withInfo-1)
	binary.NativeEndian.PutUint32(req[20:], ^uint32(0)) // any state
	binary.BigEndian.PutUint16(req[24:], uint16(from.Port))
	binary.BigEndian.PutUint16(req[26:], uint16(to.Port))
	copy(req[28:], from.IP.To4())
	copy(req[44:], to.IP.To4())
	binary.NativeEndian.PutUint64(req[64:], ^uint64(0)) // any cookie
	if err := unix.Sendto(fd, req[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, true
	}
	var res [4096]byte
	n, err := unix.Read(fd, res[:])
	if err != nil || n < msgLen || binary.NativeEndian.Uint16(res[4:]) != byFamily {
		return 0, false // there is no such connection any more
	}
	for rest := res[msgLen:n]; len(rest) >= 4; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < 4 || size > len(rest) {
			break
		}
		if binary.NativeEndian.Uint16(rest[2:]) == withInfo {
			var info unix.TCPInfo
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info)), rest[4:size])
			return int64(info.Bytes_sent-info.Bytes_retrans) + int64(info.Notsent_bytes), info.State == 1
		}
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	return 0, true
}

// enter counts a stream that has come.
func (j *streams) enter(s *stream) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open[s] = struct{}{}
	j.total++
	if len(j.open) <= j.k {
		j.most = max(j.most, len(j.open))
		return
	}
	then := make(map[*stream]state)
	for o := range j.open {
		if bytes, open := o.conn.sent(); open {
			then[o] = state{bytes, o.server}
		}
	}
	j.again.Go(func() { j.recount(then) }) // not here: readers have to go on
}

// state is what was known of a stream at a time.
type state struct {
	sent   int64 // bytes that the client had written to the connection
	server bool  // has ended its side
}

// recount counts the streams that were open then.
func (j *streams) recount(then map[*stream]state) {
	for s, was := range then {
		for s.conn.settled.Load() < was.sent && !s.conn.finished.Load() {
			time.Sleep(100 * time.Microsecond)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for s, was := range then {
		reset := s.resetAt > 0 && s.resetAt <= was.sent
		ended := was.server && s.endedAt > 0 && s.endedAt <= was.sent
		if !reset && !ended {
			n++
		}
	}
	j.most = max(j.most, n)
}

// ended notes what has ended a stream.
func (j *streams) ended(s *stream, client, server, reset bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch at := s.conn.taken.Load(); {
	case client && reset && s.resetAt == 0:
		s.resetAt = at
	case client && s.endedAt == 0:
		s.endedAt = at
	}
	s.client, s.server = s.client || client, s.server || server
	if reset || s.client && s.server {
		delete(j.open, s)
	}
}

// counts returns how many streams are open, the most that were, and how many came.
func (j *streams) counts() (open, most, total int) {
	j.again.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.open), j.most, j.total
}

// tap looks at the frames of both directions.
type tap struct {
	net.Conn // TLS, or below
	below    *counted
	judge    *streams
	in, out  splitter

	mu      sync.Mutex
	streams map[uint32]*stream
}

// Read implements net.Conn.
func (t *tap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.in.feed(p[:n], func(head []byte) { t.frame(head, true) })
	return n, err
}

// Write implements net.Conn.
func (t *tap) Write(p []byte) (int, error) {
	t.out.feed(p, func(head []byte) { t.frame(head, false) })
	return t.Conn.Write(p)
}

// frame looks at the head of a frame.
func (t *tap) frame(head []byte, client bool) {
	kind, flags, id := http2.FrameType(head[3]), http2.Flags(head[4]), binary.BigEndian.Uint32(head[5:])&(1<<31-1)
	t.mu.Lock()
	s := t.streams[id]
	begins := s == nil && kind == http2.FrameHeaders && client
	if begins {
		s = &stream{conn: t.below}
		t.streams[id] = s
	}
	t.mu.Unlock()
	if s == nil {
		return
	}
	if begins {
		t.judge.enter(s)
	}
	ends := (kind == http2.FrameHeaders || kind == http2.FrameData) && flags&http2.FlagDataEndStream != 0
	if reset := kind == http2.FrameRSTStream; ends || reset {
		t.judge.ended(s, client, !client, reset)
	}
}

// splitter finds pieces in bytes: each has a head, which tells how long the rest is.
type splitter struct {
	size func(head []byte) int
	skip int    // bytes before the next head
	head []byte // of the next piece
	need int    // bytes of a head
}

// frames finds those of HTTP/2, after so many bytes.
func frames(after int) splitter {
	return splitter{need: 9, skip: after, size: func(head []byte) int { return int(binary.BigEndian.Uint32(head)) >> 8 }}
}

// records finds those of TLS.
func records() splitter {
	return splitter{need: 5, size: func(head []byte) int { return int(binary.BigEndian.Uint16(head[3:])) }}
}

// most returns how many bytes there are to the end of the piece, or of its head.
func (f *splitter) most() int {
	if f.skip > 0 {
		return f.skip
	}
	return f.need - len(f.head)
}

// feed takes bytes, and calls each for each head in them.
func (f *splitter) feed(p []byte, each func(head []byte)) {
	for len(p) > 0 {
		n := min(f.most(), len(p))
		if f.skip > 0 {
			f.skip -= n
		} else if f.head = append(f.head, p[:n]...); len(f.head) == f.need {
			f.skip = f.size(f.head)
			if each != nil {
				each(f.head)
			}
			f.head = f.head[:0]
		}
		p = p[n:]
	}
}

// serveStreams serves h over HTTP/2, with TLS or in the clear, until the test ends, and
// returns the address as reverse_proxy takes it.
func serveStreams(t *testing.T, k int, secure bool, h http.Handler) (j *streams, address string) {
	t.Helper()
	j = &streams{k: k, open: make(map[*stream]struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	scheme, config := "h2c", certificate(t)
	if secure {
		scheme = "https"
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(t.Context(), func() { _ = conn.Close() })()
				tapped := &tap{below: &counted{TCPConn: conn.(*net.TCPConn), split: frames(len(http2.ClientPreface))}, judge: j, streams: make(map[uint32]*stream)}
				tapped.in, tapped.out = frames(len(http2.ClientPreface)), frames(0)
				if tapped.Conn = tapped.below; secure {
					tapped.below.split = records()
					tapped.Conn = tls.Server(tapped.below, config)
				}
				//lint:ignore SA1019 Serve would want the TLS below the tap
				new(http2.Server).ServeConn(tapped, &http2.ServeConnOpts{Context: t.Context(), Handler: h})
				tapped.below.finished.Store(true)
				tapped.mu.Lock()
				defer tapped.mu.Unlock()
				for _, s := range tapped.streams {
					j.ended(s, false, true, true)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	return j, scheme + "://" + l.Addr().String()
}

// certificate returns a configuration with one that nobody has signed.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2"}}
}
