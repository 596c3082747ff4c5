package deadline

import (
	"errors"
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

// TestReader: whatever deadlines are set, a read fails when the last one has passed
// and not before.
func TestReader(t *testing.T) {
	const never = -1
	for _, c := range []struct {
		name   string
		set    []time.Duration // from the start; 0: none
		during time.Duration   // is set while the read waits; 0: nothing
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
		{"an earlier one during the read", []time.Duration{9 * time.Second}, 3 * time.Second, 3 * time.Second, 2},
		{"a later one during the read", []time.Duration{3 * time.Second}, 9 * time.Second, 9 * time.Second, 2},
		{"the first one during the read", nil, 3 * time.Second, 3 * time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer server.Close()
				conn, r, start := &counted{Conn: client}, new(Reader), time.Now()
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
					time.AfterFunc(time.Hour, func() { _, _ = server.Write([]byte("x")) })
				}
				n, err := r.Read(conn, make([]byte, 1))
				took := time.Since(start)
				switch {
				case c.fails == never && (n != 1 || err != nil || took != time.Hour):
					t.Errorf("read %d bytes, %v, after %v", n, err, took)
				case c.fails != never && (!errors.Is(err, os.ErrDeadlineExceeded) || took != c.fails):
					t.Errorf("failed with %v after %v", err, took)
				case conn.set > c.timers:
					t.Errorf("%d timers were set", conn.set)
				}
			})
		})
	}
}
