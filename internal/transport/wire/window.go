package wire

import "time"

const (
	// minWindow and maxWindow bound a [window].
	minWindow = 128 << 10
	maxWindow = 1 << 20
	// maxWait is how much longer than the shortest round trip one should take.
	maxWait = 10 * time.Millisecond
	// watchEvery is how often a full window has its round trip measured.
	watchEvery = 10 * time.Millisecond
)

// window bounds what is on its way: bytes of messages that are not acknowledged, and, besides, bytes
// of data that are not read. What is urgent queues behind them in the kernel's buffers and in the
// network's, where nothing overtakes. So the window is no larger than keeps the path busy: it grows
// while it is what holds things up, and shrinks when round trips get longer than they can be.
type window struct {
	size int
	base time.Duration // the shortest round trip; 0: unknown
	full bool          // it has held something up since the last round trip
}

// watch notes whether the window holds something up, and has the round trip measured then.
func (c *Conn) watch(now time.Duration) {
	if len(c.data) > 0 && !c.dataDue() || c.link != nil && c.link.unwritten() && !c.linkDue() && c.linked() {
		c.full = true
		c.pingDue = c.pingDue || now-c.measured >= watchEvery
	}
}

// adapt takes in a round trip.
func (w *window) adapt(trip time.Duration) {
	trip = max(trip, 1)
	if w.base == 0 || trip < w.base {
		w.base = trip
	}
	switch wait := trip - w.base; {
	case wait > maxWait:
		w.size = max(minWindow, int(int64(w.size)*int64(maxWait)/int64(wait)))
	case w.full:
		w.size = min(maxWindow, 2*w.size)
	}
	w.full = false
}
