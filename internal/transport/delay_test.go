package transport

import (
	"io"
	"net"
	"time"
)

// delayLine holds writes back, to imitate a slow network. Unlike a pause before each
// write it lets many be on their way at once.
type delayLine struct {
	out   io.Writer
	delay time.Duration
	line  chan delayedWrite
	over  chan struct{}
}

type delayedWrite struct {
	data []byte
	due  time.Time
}

// delayBacklog bounds how many writes are on their way; then Write blocks, as it
// does on a full TCP window.
const delayBacklog = 1 << 14

// delayed returns what a session writes to over a slow network.
func delayed(s *session, delay time.Duration) *delayLine {
	d := &delayLine{out: s.conn, delay: delay, line: make(chan delayedWrite, delayBacklog), over: make(chan struct{})}
	go func() { s.fail(d.run(s.stop)) }()
	return d
}

// Write takes b, to be written after the delay and after everything before.
func (d *delayLine) Write(b []byte) (int, error) {
	w := delayedWrite{data: append([]byte(nil), b...), due: time.Now().Add(d.delay)}
	select {
	case d.line <- w:
		return len(b), nil
	case <-d.over:
		return 0, net.ErrClosed
	}
}

// run writes until stop is closed or a write fails.
func (d *delayLine) run(stop <-chan struct{}) error {
	defer close(d.over)
	for {
		var w delayedWrite
		select {
		case w = <-d.line:
		case <-stop:
			return net.ErrClosed
		}
		if wait := time.Until(w.due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-stop:
				return net.ErrClosed
			}
		}
		if _, err := d.out.Write(w.data); err != nil {
			return err
		}
	}
}
