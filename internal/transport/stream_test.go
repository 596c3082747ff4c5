package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// echo answers every stream with the kind's name and what it reads.
func echo(wg *sync.WaitGroup, s *Stream, name string) {
	wg.Go(func() {
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, name)
				_, _ = io.Copy(conn, conn)
			})
		}
	})
}

// TestStreams: all kinds, with and without TLS, and large enough that nothing
// of a stream is lost to the preamble's reader.
func TestStreams(t *testing.T) {
	for name, config := range map[string]*tls.Config{"plaintext": nil, "tls": newPKI(t).peer(t)} {
		t.Run(name, func(t *testing.T) {
			t1, t2 := listen(t, Config{TLS: config}), listen(t, Config{TLS: config})
			var wg sync.WaitGroup
			echo(&wg, t2.Stream(StreamRaft), "raft")
			echo(&wg, t2.Stream(StreamControl), "control")
			for _, kind := range []StreamKind{StreamRaft, StreamControl} {
				conn, err := t1.Stream(kind).Dial(within(t), t2.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				text := strings.Repeat("x", 100_000)
				wg.Go(func() { _, _ = io.WriteString(conn, text) })
				want := kind.String() + text
				got := make([]byte, len(want))
				_ = conn.SetReadDeadline(time.Now().Add(patience))
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
					t.Errorf("%v: %.20q, %v", kind, got, err)
				}
				_ = conn.Close()
			}
			if a := t2.Stream(StreamRaft).Addr(); a.String() != t2.Addr().String() {
				t.Errorf("Addr = %v", a)
			}
			if err := t2.Close(); err != nil {
				t.Error(err)
			}
			wg.Wait() // Accept has returned
			if _, err := t2.Stream(StreamRaft).Accept(); !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept after Close: %v", err)
			}
			if _, err := t2.Stream(StreamRaft).Dial(within(t), t1.Addr().String()); !errors.Is(err, ErrClosed) {
				t.Errorf("Dial after Close: %v", err)
			}
		})
	}
}

// Whoever opens streams and never closes them has so many at most, and gets others when
// it closes some.
func TestStreamsAreBounded(t *testing.T) {
	seen := newCounter()
	t1, t2 := listen(t, Config{}), listen(t, Config{Observer: seen})
	taken := t2.Stream(StreamControl)
	accepted := make(chan net.Conn, mostStreamsEach+1)
	go func() {
		for {
			conn, err := taken.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() error {
		_, err := t1.Stream(StreamControl).Dial(within(t), t2.Addr().String())
		return err
	}
	for range mostStreamsEach {
		if err := dial(); err != nil {
			t.Fatal(err)
		}
	}
	if err := dial(); !errors.Is(err, errRefused) {
		t.Errorf("one more: %v", err)
	}
	eventually(t, "it is counted", func() bool { return seen.count(CauseStreams) == 1 })
	if err := (<-accepted).Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "a place is free", func() bool { return dial() == nil })
	for range mostStreamsEach {
		_ = (<-accepted).Close()
	}
}

func TestStreamRefusals(t *testing.T) {
	seen := newCounter()
	t1, t2 := listen(t, Config{}), listen(t, Config{Observer: seen, limits: limits{backlog: 2}})
	addr := t2.Addr().String()
	dial := func() (net.Conn, error) { return t1.Stream(StreamRaft).Dial(within(t), addr) }
	if _, err := dial(); !errors.Is(err, errRefused) {
		t.Errorf("before anybody accepts: %v", err)
	}
	eventually(t, "it is counted", func() bool { return seen.count(CauseKind) == 1 }) // after the answer
	raft := t2.Stream(StreamRaft)
	var waiting []net.Conn
	for range 2 {
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, conn)
	}
	if _, err := dial(); !errors.Is(err, errRefused) {
		t.Errorf("to a full backlog: %v", err)
	}
	eventually(t, "it is counted", func() bool { return seen.count(CauseBacklog) == 1 })
	conn, err := raft.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	again, err := dial()
	if err != nil {
		t.Fatalf("after an Accept: %v", err)
	}
	if err := errors.Join(raft.Close(), raft.Close()); err != nil {
		t.Error(err)
	}
	for _, conn := range append(waiting, again) {
		closed(t, conn)
		_ = conn.Close()
	}
	if _, err := dial(); !errors.Is(err, errRefused) {
		t.Errorf("after Close: %v", err)
	}
	eventually(t, "it is counted", func() bool { return seen.count(CauseIncomplete) == 1 }) // this end is about to close
}

// The time for the preamble is no limit for the stream.
func TestStreamOutlivesHandshakeTimeout(t *testing.T) {
	const timeout = 50 * time.Millisecond
	t1, t2 := listen(t, Config{limits: limits{handshakeTimeout: timeout}}), listen(t, Config{limits: limits{handshakeTimeout: timeout}})
	raft := t2.Stream(StreamRaft)
	near, err := t1.Stream(StreamRaft).Dial(within(t), t2.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := raft.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	<-time.After(2 * timeout) // the time is what is tested
	for _, conns := range [][2]net.Conn{{near, far}, {far, near}} {
		if _, err := conns[0].Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if _, err := conns[1].Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	}
}

// Dial says what is wrong with the other end, and ends with its context.
func TestDialStrangers(t *testing.T) {
	tr := listen(t, Config{})
	for name, tc := range map[string]struct {
		say  string
		want error
	}{
		"another version": {"kgat\x03\x01\x00\x00", errVersion},
		"http":            {"HTTP/1.1 400 Bad Request\r\n\r\n", errMagic},
		"closes":          {"", io.EOF},
		"no status":       {"kgat\x05\x63\x00\x00", errPreamble},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, preambleSize))
			_, _ = io.WriteString(conn, tc.say)
			_ = conn.Close()
		})
		if _, err := tr.Stream(StreamRaft).Dial(within(t), l.Addr().String()); !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, want %v", name, err, tc.want)
		}
		_ = l.Close()
		wg.Wait()
	}

	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := tr.Stream(StreamRaft).Dial(ctx, l.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent port: error %v", err)
	}
}

func TestStreamOfLinksPanics(t *testing.T) {
	tr := listen(t, Config{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	tr.Stream(streamLink)
}
