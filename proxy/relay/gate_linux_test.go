package relay

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCheckWithinWrite: a write that waits for room when the right ends sends nothing more, neither
// of a socket's first bytes, which go through a buffer, nor of what goes through a pipe, nor of
// what comes from elsewhere.
func TestCheckWithinWrite(t *testing.T) {
	over := errors.New("over")
	for name, tt := range map[string]struct {
		from func(*net.TCPConn) io.Reader
		room int
	}{
		"first bytes": {ways["kernel"], small / 16},
		"kernel":      {ways["kernel"], small},
		"buffer":      {ways["buffer"], small},
	} {
		sender, source := connect(t)
		sink, receiver := connect(t)
		_, _ = sink.SetWriteBuffer(tt.room), receiver.SetReadBuffer(tt.room)
		var ended atomic.Bool
		s := newStream(tt.from(source), sink)
		s.Check = func() error {
			if ended.Load() {
				return over
			}
			return nil
		}
		done := make(chan error, 1)
		go func() {
			done <- s.Run()
			_ = sink.Close()
		}()
		go func() {
			_, _ = sender.Write(make([]byte, 2<<20))
			_ = sender.CloseWrite()
		}()
		sent := awaitFull(t, sink, receiver)
		if name == "kernel" && sent <= small {
			t.Errorf("%d bytes fit, and no pipe was made", sent)
		}
		ended.Store(true)
		got, _ := io.Copy(io.Discard, receiver)
		if err := <-done; !errors.Is(err, over) {
			t.Errorf("%s: %v", name, err)
		}
		if got != sent {
			t.Errorf("%s: %d bytes were sent before the end, %d in all", name, sent, got)
		}
		_ = sender.Close()
	}
}

// awaitFull waits until nothing goes from one socket to the other any more, since nobody reads
// there, and returns how many bytes are on the way.
func awaitFull(t *testing.T, from, to *net.TCPConn) (bytes int64) {
	t.Helper()
	for same := 0; same < 20; time.Sleep(5 * time.Millisecond) {
		if now := queued(t, from, unix.TIOCOUTQ) + queued(t, to, unix.TIOCINQ); now != bytes || now == 0 {
			bytes, same = now, 0
		} else {
			same++
		}
	}
	return bytes
}

// queued returns what the system says of a socket's queue.
func queued(t *testing.T, c *net.TCPConn, queue uint) (bytes int64) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if controlErr := raw.Control(func(fd uintptr) {
		var n int
		n, err = unix.IoctlGetInt(int(fd), queue)
		bytes = int64(n)
	}); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	return bytes
}
