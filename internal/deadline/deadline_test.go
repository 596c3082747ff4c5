package deadline

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// counted counts how often a deadline is set in the runtime.
type counted struct {
	net.Conn
	set int
}

func (c *counted) SetReadDeadline(t time.Time) error {
	c.set++
	return c.Conn.SetReadDeadline(t)
}

func (c *counted) SetWriteDeadline(t time.Time) error {
	c.set++
	return c.Conn.SetWriteDeadline(t)
}

// limited is a Reader or a Writer.
type limited interface {
	Set(conn net.Conn, t time.Time) error
}

// TestReader: a read fails when the last deadline set has passed, and not before.
func TestReader(t *testing.T) {
	r := new(Reader)
	testDeadlines(t, func() limited { *r = Reader{}; return r }, func(conn net.Conn) (int, error) { return r.Read(conn, make([]byte, 1)) })
}

// TestWriter: so does a write.
func TestWriter(t *testing.T) {
	w := new(Writer)
	testDeadlines(t, func() limited { *w = Writer{}; return w }, func(conn net.Conn) (int, error) { return w.Write(conn, []byte("x")) })
}

// TestWriteGoesOn: a write that an earlier deadline has cut in two is one write.
func TestWriteGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		w, start := new(Writer), time.Now()
		for _, after := range []time.Duration{time.Second, time.Hour} {
			if err := w.Set(client, start.Add(after)); err != nil {
				t.Fatal(err)
			}
		}
		got := make(chan string)
		go func() {
			p := make([]byte, 3)
			_, _ = io.ReadFull(server, p)
			time.Sleep(time.Minute)
			rest := make([]byte, 3)
			_, _ = io.ReadFull(server, rest)
			got <- string(p) + string(rest)
		}()
		n, err := w.Write(client, []byte("abcdef"))
		if text := <-got; n != 6 || err != nil || text != "abcdef" {
			t.Errorf("%d bytes, %v; %q came", n, err, text)
		}
	})
}

func testDeadlines(t *testing.T, zero func() limited, use func(net.Conn) (int, error)) {
	const never = -1
	for _, c := range []struct {
		name   string
		set    []time.Duration // from the start; 0: none
		during time.Duration   // is set meanwhile; 0: nothing
		fails  time.Duration
		timers int // set in the runtime, at most
	}{
		{"one", []time.Duration{3 * time.Second}, 0, 3 * time.Second, 1},
		{"later ones", []time.Duration{3 * time.Second, 5 * time.Second, 9 * time.Second}, 0, 9 * time.Second, 2},
		{"an earlier one", []time.Duration{9 * time.Second, 3 * time.Second}, 0, 3 * time.Second, 2},
		{"there and back", []time.Duration{9 * time.Second, 3 * time.Second, 9 * time.Second}, 0, 9 * time.Second, 3},
		{"taken back", []time.Duration{3 * time.Second, 0}, 0, never, 2},
		{"taken back and set", []time.Duration{3 * time.Second, 0, 9 * time.Second}, 0, 9 * time.Second, 2},
		{"passed", []time.Duration{-time.Second}, 0, 0, 1},
		{"passed, taken back and set", []time.Duration{-time.Second, 0, time.Second}, 0, time.Second, 2},
		{"an earlier one meanwhile", []time.Duration{9 * time.Second}, 3 * time.Second, 3 * time.Second, 2},
		{"a later one meanwhile", []time.Duration{3 * time.Second}, 9 * time.Second, 9 * time.Second, 2},
		{"the first one meanwhile", nil, 3 * time.Second, 3 * time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer server.Close()
				conn, r, start := &counted{Conn: client}, zero(), time.Now()
				set := func(after time.Duration) {
					at := start.Add(after)
					if after == 0 {
						at = time.Time{}
					}
					if err := r.Set(conn, at); err != nil {
						t.Error(err)
					}
				}
				for _, after := range c.set {
					set(after)
				}
				if c.during > 0 {
					time.AfterFunc(time.Second, func() { set(c.during) })
				}
				if c.fails == never {
					time.AfterFunc(time.Hour, func() {
						go func() { _, _ = server.Read(make([]byte, 1)) }()
						_, _ = server.Write([]byte("x"))
					})
				}
				n, err := use(conn)
				took := time.Since(start)
				switch {
				case c.fails == never && (n != 1 || err != nil || took != time.Hour):
					t.Errorf("moved %d bytes, %v, after %v", n, err, took)
				case c.fails != never && (!errors.Is(err, os.ErrDeadlineExceeded) || took != c.fails):
					t.Errorf("failed with %v after %v", err, took)
				case conn.set > c.timers:
					t.Errorf("%d timers were set", conn.set)
				}
			})
		})
	}
}

// TestInterrupt: one read that finds no data fails. Deadlines set meanwhile do not matter to it, and
// hold for the next reads.
func TestInterrupt(t *testing.T) {
	for _, c := range []struct {
		name    string
		waiting bool          // the read, when it is interrupted
		settled bool          // the interruption is taken back
		set     time.Duration // from the start, after the interruption; 0: none
		want    error
		after   time.Duration
	}{
		{"a read that waits", true, false, 0, ErrInterrupted, time.Second},
		{"who does not wait yet", false, false, 0, ErrInterrupted, 0},
		{"a deadline is set", false, false, time.Minute, ErrInterrupted, 0},
		{"taken back", false, true, time.Minute, os.ErrDeadlineExceeded, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, server := net.Pipe()
				defer server.Close()
				r, start := new(Reader), time.Now()
				_ = r.Set(conn, start.Add(time.Hour))
				interrupt := func() {
					_ = r.Interrupt(conn)
					_ = r.Set(conn, start.Add(cmp.Or(c.set, time.Hour)))
					if c.settled {
						_ = r.Settle(conn)
					}
				}
				if c.waiting {
					time.AfterFunc(time.Second, interrupt)
				} else {
					interrupt()
				}
				if _, err := r.Read(conn, make([]byte, 1)); !errors.Is(err, c.want) || time.Since(start) != c.after {
					t.Errorf("failed with %v after %v", err, time.Since(start))
				}
				if _, err := r.Read(conn, make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != cmp.Or(c.set, time.Hour) {
					t.Errorf("the next one failed with %v after %v", err, time.Since(start))
				}
			})
		})
	}
}
