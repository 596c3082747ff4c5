package transport

import (
	"time"
)

// now is the time of connections: since the start.
func (t *Transport) now() time.Duration { return time.Since(t.started) }

func (t *Transport) tell(c Change) {
	if f := t.config.Changed; f != nil {
		f(c)
	}
}
