package cluster

import (
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ByteJudge is an upstream that sends and takes bytes without end, and tells how many have
// left it, and have come: those that the other end's system has acknowledged, and those
// that this system has acknowledged.
type ByteJudge struct {
	mu    sync.Mutex
	conns map[*judgedConn]struct{}
	gone  Bytes // of connections that are closed
}

// Bytes that have moved since the beginning, counted at a moment between Began and At.
type Bytes struct {
	Began, At time.Time
	Down, Up  int64
}

type judgedConn struct {
	*net.TCPConn
	judge *ByteJudge
	once  sync.Once
}

type judgedListener struct {
	net.Listener
	judge *ByteJudge
}

func (l judgedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &judgedConn{TCPConn: conn.(*net.TCPConn), judge: l.judge}
	l.judge.mu.Lock()
	defer l.judge.mu.Unlock()
	l.judge.conns[c] = struct{}{}
	return c, nil
}

func (c *judgedConn) Close() error {
	c.once.Do(func() {
		c.judge.mu.Lock()
		defer c.judge.mu.Unlock()
		delete(c.judge.conns, c)
		down, up := c.bytes()
		c.judge.gone.Down += down
		c.judge.gone.Up += up
	})
	return c.TCPConn.Close()
}

func (c *judgedConn) bytes() (acked, received int64) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			acked, received = int64(info.Bytes_acked), int64(info.Bytes_received)
		}
	})
	return acked, received
}

// NewByteJudge serves h until the test ends.
func NewByteJudge(tb testing.TB, h http.Handler) (j *ByteJudge, url string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	j = &ByteJudge{conns: make(map[*judgedConn]struct{})}
	serveOn(tb, &http.Server{Handler: h}, judgedListener{l, j})
	return j, "http://" + l.Addr().String()
}

// Now returns what has moved so far.
func (j *ByteJudge) Now() Bytes {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := j.gone
	b.Began = time.Now()
	for c := range j.conns {
		down, up := c.bytes()
		b.Down += down
		b.Up += up
	}
	b.At = time.Now()
	return b
}
