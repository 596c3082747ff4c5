package relay

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns both ends of a connection.
func connect(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// newStream returns one that may move all that there is.
func newStream(from io.Reader, to net.Conn) *Stream {
	return &Stream{
		From: from, To: to, Check: func() error { return nil }, Moved: func(int) {},
		Take: func(want int) (int, error) { return want, nil }, Unused: func(int) {},
	}
}

// plain hides what a socket can do besides.
type plain struct{ io.Reader }

// ways are the two in which bytes are copied: by the kernel, and through a buffer.
var ways = map[string]func(*net.TCPConn) io.Reader{
	"kernel": func(c *net.TCPConn) io.Reader { return c },
	"buffer": func(c *net.TCPConn) io.Reader { return plain{c} },
}

// TestRun: what is sent arrives, and all of it is counted, whether it needs a pipe or not.
func TestRun(t *testing.T) {
	for name, from := range ways {
		for _, size := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 5<<20 + 7} {
			sender, source := connect(t)
			sink, receiver := connect(t)
			sent := make([]byte, size)
			_, _ = rand.Read(sent)
			go func() {
				_, _ = sender.Write(sent)
				_ = sender.CloseWrite()
			}()
			moved := 0
			s := newStream(from(source), sink)
			s.Moved = func(n int) { moved += n }
			done := make(chan error, 1)
			go func() {
				done <- s.Run()
				_ = sink.CloseWrite()
			}()
			got, err := io.ReadAll(receiver)
			if err := errors.Join(err, <-done); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !bytes.Equal(got, sent) || moved != len(sent) {
				t.Errorf("%s: %d bytes arrived, %d counted, of %d", name, len(got), moved, len(sent))
			}
		}
	}
}

// TestCheckBeforeEachWrite: what comes after the right has ended is not sent, though the
// copy was waiting for it before.
func TestCheckBeforeEachWrite(t *testing.T) {
	over := errors.New("over")
	for name, from := range ways {
		sender, source := connect(t)
		sink, receiver := connect(t)
		var ended atomic.Bool
		s := newStream(from(source), sink)
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
		_, _ = io.WriteString(sender, "before")
		got := make([]byte, 6)
		if _, err := io.ReadFull(receiver, got); err != nil {
			t.Fatal(err)
		}
		ended.Store(true)
		_, _ = io.WriteString(sender, "after")
		var write *WriteError
		if err := <-done; !errors.Is(err, over) || !errors.As(err, &write) {
			t.Errorf("%s: %v", name, err)
		}
		if rest, _ := io.ReadAll(receiver); len(rest) > 0 {
			t.Errorf("%s: %q was sent", name, rest)
		}
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

// TestWhoFailed: an error says which end it was.
func TestWhoFailed(t *testing.T) {
	for name, from := range ways {
		for _, failing := range []string{"sender", "receiver"} {
			sender, source := connect(t)
			sink, receiver := connect(t)
			s := newStream(from(source), sink)
			done := make(chan error, 1)
			go func() { done <- s.Run() }()
			broken := sender
			if failing == "receiver" {
				broken = receiver
				go func() { _, _ = io.Copy(sender, neverEnding{}) }()
			}
			_ = broken.SetLinger(0)
			_ = broken.Close()
			err := <-done
			var write *WriteError
			if err == nil || errors.As(err, &write) != (failing == "receiver") {
				t.Errorf("%s, %s: %v", name, failing, err)
			}
			_ = source.Close()
		}
	}
}

// TestClosed: closing either end from elsewhere ends the copy, wherever it waits.
func TestClosed(t *testing.T) {
	for name, from := range ways {
		_, source := connect(t)
		sink, _ := connect(t)
		s := newStream(from(source), sink)
		done := make(chan error, 1)
		go func() { done <- s.Run() }()
		time.Sleep(time.Millisecond)
		_ = source.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
