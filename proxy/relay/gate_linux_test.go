package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kgate/kgate/proxy/tcpstate"
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

// TestAsk: an Ask returns when there is something to read, and nobody waits for ever: not behind a
// deadline, nor when the connection is closed, nor when not all can be sent at once.
func TestAsk(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  int
		after func(near, far *net.TCPConn)
		want  error // of the next Read
	}{
		{"an answer", 1, func(_, far *net.TCPConn) { _, _ = far.Write([]byte("x")) }, nil},
		{"an answer to much", 8 << 20, func(_, far *net.TCPConn) {
			_, _ = io.CopyN(io.Discard, far, 8<<20-1)
			_, _ = far.Write([]byte("x"))
		}, nil},
		{"an end", 1, func(_, far *net.TCPConn) { _ = far.CloseWrite() }, io.EOF},
		{"a deadline", 1, func(near, _ *net.TCPConn) { _ = near.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		{"closed here", 1, func(near, _ *net.TCPConn) { _ = near.Close() }, net.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			near, far := connect(t)
			g := NewGate(near, func() error { return nil })
			var early atomic.Bool
			early.Store(true)
			go func() {
				_, _ = far.Read(make([]byte, 1))
				time.Sleep(10 * time.Millisecond)
				early.Store(false)
				c.after(near, far)
			}()
			if n, err := g.Ask(make([]byte, c.size)); n != c.size || err != nil || early.Load() {
				t.Errorf("%d bytes, %v; too early: %v", n, err, early.Load())
			}
			if _, err := near.Read(make([]byte, 1)); !errors.Is(err, c.want) {
				t.Errorf("then a Read fails with %v", err)
			}
		})
	}
}

// TestSpokeFirst: after Begin nothing is sent to a side that has spoken first, or has closed the
// connection.
func TestSpokeFirst(t *testing.T) {
	for name, do := range map[string]func(far *net.TCPConn){
		"a byte": func(far *net.TCPConn) { _, _ = far.Write([]byte("x")) },
		"an end": func(far *net.TCPConn) { _ = far.CloseWrite() },
	} {
		for how, write := range map[string]func(*Gate, []byte) (int, error){"Write": (*Gate).Write, "Ask": (*Gate).Ask} {
			near, far := connect(t)
			g := NewGate(near, func() error { return nil })
			g.Begin()
			if n, err := g.Write([]byte("a")); n != 1 || err != nil {
				t.Errorf("to who is silent: %d, %v", n, err)
			}
			g.Begin()
			for do(far); !tcpstate.HasEnded(near) && !tcpstate.HasUnread(near); {
				time.Sleep(time.Millisecond)
			}
			if n, err := write(g, []byte("b")); n != 0 || !errors.Is(err, ErrSpoke) {
				t.Errorf("%s, %s: %d, %v", name, how, n, err)
			}
			_ = near.Close()
			if got, _ := io.ReadAll(far); string(got) != "a" {
				t.Errorf("%s, %s: %q was sent", name, how, got)
			}
		}
	}
}
