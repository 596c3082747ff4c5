//go:build unix

package transport

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
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

// SendNow writes, but does not wait when the other end reads no more. Everything arrives in
// order when it does again.
func TestSenderDoesNotWait(t *testing.T) {
	t.Parallel()
	pki := newPKI(t)
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := func() *tls.Config {
				if !secure {
					return nil
				}
				return pki.peer(t)
			}
			const n = 20
			at2 := newInOrder(n)
			const ping = time.Minute // nothing else writes
			t2 := listen(t, Config{Name: nameOf(2), TLS: config(), PingInterval: ping, Handler: at2})
			between := newNarrows(t, t2.Addr().String())
			t1 := listen(t, Config{Name: nameOf(1), TLS: config(), PingInterval: ping})
			setPeers(t1, 1, []Peer{{Node: 2, Addr: between.addr}})
			setPeers(t2, 2, []Peer{{Node: 1}})
			waitUp(t, t1, t2)
			if err := t1.peers.Load().links[2].p.session.raw.Conn.(*net.TCPConn).SetWriteBuffer(narrow); err != nil {
				t.Fatal(err)
			}
			between.mu.Lock()
			open := sync.OnceFunc(between.mu.Unlock)
			defer open()
			sent := make(chan struct{})
			var failed error
			go func() {
				defer close(sent)
				for i := 1; i <= n; i++ { // each more than the narrows take
					m := kmutex.Message{Kind: kmutex.KindBaton, Epoch: 1, Number: uint64(i), Tails: make([]kmutex.Seat, maxTokens/8)}
					for j := range m.Tails {
						m.Tails[j] = kmutex.Seat{Node: kmutex.Node(j + 1), Serial: 1 << 40}
					}
					failed = errors.Join(failed, t1.SendNow(2, "downloads", m))
				}
			}()
			wait(t, "all sends", sent)
			if open(); failed != nil {
				t.Fatal(failed)
			}
			wait(t, "all messages", at2.done)
			at2.check(t, "at 2")
		})
	}
}

// narrow is what the kernel may keep of a connection to narrows, in bytes.
const narrow = 16 << 10

// narrows passes on what comes, but while its lock is held reads nothing.
type narrows struct {
	addr string
	mu   sync.Mutex
}

func (n *narrows) wait() {
	n.mu.Lock()
	defer n.mu.Unlock()
}

func newNarrows(t *testing.T, to string) *narrows {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, narrow) }), err)
	}}
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &narrows{addr: l.Addr().String()}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = l.Close() })
	pass := func(from, to net.Conn) {
		defer func() { _, _ = from.Close(), to.Close() }()
		for b := make([]byte, narrow); ; {
			n.wait()
			k, err := from.Read(b)
			if err != nil {
				return
			}
			if _, err := to.Write(b[:k]); err != nil {
				return
			}
		}
	}
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			all.Go(func() { pass(near, far) })
			all.Go(func() { pass(far, near) })
		}
	})
	return n
}
