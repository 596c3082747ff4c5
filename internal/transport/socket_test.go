//go:build unix

package transport

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// connected returns the two ends of a TCP connection.
func connected(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return a, b
}

// A write does not wait for an end that does not read; all of it arrives in order.
func TestSocketKeepsTheRest(t *testing.T) {
	t.Parallel()
	a, b := connected(t)
	s := newSocket(a)
	var want []byte
	write := func() {
		piece := bytes.Repeat([]byte{byte(len(want) >> 16)}, 60_000)
		if n, err := s.Write(piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
		want = append(want, piece...)
	}
	for !s.keeps() {
		write()
	}
	got := make([]byte, len(want)-len(s.kept))
	if _, err := io.ReadFull(b, got); err != nil {
		t.Fatal(err)
	}
	for range 10 { // the kernel has room again, but they go behind what is kept
		write()
	}
	flushed := make(chan error, 1)
	go func() {
		err := s.flush()
		_ = a.(*net.TCPConn).CloseWrite() // reading ends, or fails
		flushed <- err
	}()
	rest, err := io.ReadAll(b)
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	if got = append(got, rest...); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes arrived, want %d: %v", len(got), len(want), err)
	}
}

// A write to a connection that has ended fails, and so does a flush.
func TestSocketFails(t *testing.T) {
	t.Parallel()
	a, _ := connected(t)
	s := newSocket(a)
	for !s.keeps() {
		if _, err := s.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	_ = a.Close()
	if err := s.flush(); err == nil {
		t.Error("flush did not fail")
	}
	if _, err := s.Write([]byte{1}); err == nil {
		t.Error("write did not fail")
	}
}
