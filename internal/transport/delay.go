package transport

import (
	"io"
	"net"
	"time"
)

// delayLine holds writes back, to imitate a slow network. Unlike a pause
// before each write it lets many be underway at once. For tests only.
type delayLine struct {
	out   io.Writer
	delay func() time.Duration
	line  chan delayed
	over  chan struct{}
}

type delayed struct {
	data []byte
	due  time.Time
}

// delayBacklog bounds how many writes are underway; then Write blocks, as it
// does on a full TCP window.
const delayBacklog = 1 << 14

func newDelayLine(out io.Writer, delay func() time.Duration) *delayLine {
	return &delayLine{out: out, delay: delay, line: make(chan delayed, delayBacklog), over: make(chan struct{})}
}

// Write takes b, to be written after the delay and after everything before.
func (d *delayLine) Write(b []byte) (int, error) {
	w := delayed{data: append([]byte(nil), b...), due: time.Now().Add(d.delay())}
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
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var w delayed
		select {
		case w = <-d.line:
		case <-stop:
			return net.ErrClosed
		}
		timer.Reset(time.Until(w.due))
		select {
		case <-timer.C:
		case <-stop:
			return net.ErrClosed
		}
		if _, err := d.out.Write(w.data); err != nil {
			return err
		}
	}
}
