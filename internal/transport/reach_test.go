package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/transport/wire"
)

// Reach connects at once, from either end, and only if there is no connection. Where nobody is it fails.
func TestReach(t *testing.T) {
	var mu sync.Mutex
	var told []string
	t1 := listen(t, Config{Name: "gw-1"})
	t2 := listen(t, Config{Name: "gw-2", Changed: func(c Change) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(c.Name, " ", c.Up, " ", c.Proved))
	}})
	for range 3 {
		if err := t2.Reach(within(t), to(t1), time.Second); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one connection is proved", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprint(told) == "[gw-1 true false gw-1 true true]"
	})
	other := to(t1)
	other.Name = "gw-3"
	if err := t2.Reach(within(t), other, time.Second); err == nil {
		t.Error("gw-1 is taken for gw-3")
	}
	if err := t1.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the connection has ended", func() bool { _, up := t2.Proved("gw-1"); return !up })
	if err := t2.Reach(within(t), to(t1), time.Second); err == nil {
		t.Error("nobody is there")
	}
}

// Whoever opens connections and never closes them has so many at most, and gets others when it closes
// some.
func TestConnectionsAreBounded(t *testing.T) {
	seen := newCounter()
	victim := listen(t, Config{Name: "gw-3", Observer: seen})
	n := 0
	open := func() (net.Conn, error) {
		n++
		conn := plain(t, victim)
		if _, err := conn.Write(opening(wire.Hello{Name: fmt.Sprint("x", n), Boot: "raw", To: "gw-3", Number: 1})); err != nil {
			return nil, err
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		return conn, readAnswer(conn)
	}
	var conns []net.Conn
	for range mostStreamsEach {
		conn, err := open()
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	if _, err := open(); !errors.Is(err, errRefused) {
		t.Errorf("one more: %v", err)
	}
	eventually(t, "it is counted", func() bool { return seen.count(CauseStreams) == 1 })
	_ = conns[0].Close()
	eventually(t, "a place is free", func() bool { _, err := open(); return err == nil })
}

// Meet says what is wrong with the other end, and ends with its context.
func TestMeetStrangers(t *testing.T) {
	tr := listen(t, Config{})
	for name, tc := range map[string]struct {
		say  string
		want error
	}{
		"another version": {"kgat\x03\x01\x00\x00", errVersion},
		"http":            {"HTTP/1.1 400 Bad Request\r\n\r\n", errMagic},
		"closes":          {"", io.EOF},
		"no status":       {"kgat\x08\x63\x00\x00", errPreamble},
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
			_, _ = conn.Read(make([]byte, 4096)) // all of it: what is not read resets the connection
			_, _ = io.WriteString(conn, tc.say)
			_ = conn.Close()
		})
		if _, err := tr.Meet(within(t), l.Addr().String()); !errors.Is(err, tc.want) {
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
	if _, err := tr.Meet(ctx, l.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent port: error %v", err)
	}
}
