package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/oncelog"
	"github.com/kgate/kgate/kmutex"
)

var (
	errRemoved  = errors.New("the peer left the view")
	errReplaced = errors.New("the peer has connected again")
	errLinked   = errors.New("the link has a connection")
	errRunning  = errors.New("the peer's last connection has not ended: its messages are still being delivered")
)

// link is the state that two incarnations share, over all connections between them.
type link struct {
	t          *Transport
	self, node kmutex.Node
	ctx        context.Context // ends at close
	cancel     context.CancelFunc

	// received is the number of the last message delivered. Only the session's
	// reader changes it.
	received atomic.Uint64
	// rtt is the smoothed round-trip time in nanoseconds, 0 while it is unknown or the
	// link is down. It is written under mu.
	rtt atomic.Int64
	// running is full while a session may run: from enter to leave.
	running chan struct{}

	mu         sync.Mutex
	name, addr string
	closed     bool
	out        outbox
	waiters    []waiter
	// session is the newest connection; those before it are ending.
	session *session
	// active is the connection in use; nil: there is none. The link is up when active
	// has proved that long packets pass, see padding; since tells when up last
	// changed, and ended when the last connection did.
	active     *session
	up         bool
	since      time.Time
	ended      time.Time
	connects   uint64
	failures   int
	lastErr    error
	logged     time.Time
	rttSamples int
}

// waiter is a Flush that waits until number is acknowledged.
type waiter struct {
	number uint64
	done   chan struct{}
}

func newLink(t *Transport, self kmutex.Node, p Peer) *link {
	l := &link{
		t: t, self: self, node: p.Node, name: p.Name, addr: p.Addr,
		running: make(chan struct{}, 1),
		since:   time.Now(), ended: time.Now(),
		out: outbox{maxMessages: t.config.queueMessages, maxBytes: t.config.queueBytes},
	}
	l.ctx, l.cancel = context.WithCancel(t.ctx)
	return l
}

// dials reports whether this end dials first; the other one helps if that does not work.
func (l *link) dials() bool { return l.self < l.node }

func (l *link) update(p Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name, l.addr = p.Name, p.Addr
}

// wakeWriter is called under mu.
func (l *link) wakeWriter() {
	if s := l.active; s != nil && s.idle {
		s.idle = false
		s.wake <- struct{}{} // there is room: it waits for this one
	}
}

// close drops the link, and returns the messages that it has never sent. It does not wait.
func (l *link) close(reason error) []Unsent {
	l.mu.Lock()
	l.closed = true
	s := l.session
	unsent := l.out.unsent()
	for i := range unsent {
		unsent[i].To = l.node
	}
	l.out = outbox{}
	waiters := l.waiters
	l.waiters = nil
	l.mu.Unlock()
	l.cancel()
	if s != nil {
		s.fail(reason)
	}
	for _, w := range waiters {
		close(w.done)
	}
	return unsent
}

// enter makes s the link's session when the one before has ended: from then on received
// does not change until s reads. If only is set, it fails with errLinked if there is
// another one. It waits until ctx ends, since a Handler may block, or until a newer
// connection takes the place of s: so only one connection waits, however often the peer
// connects.
func (l *link) enter(ctx context.Context, s *session, only bool) error {
	l.mu.Lock()
	before := l.session
	switch {
	case l.closed:
		l.mu.Unlock()
		return errRemoved
	case only && before != nil:
		l.mu.Unlock()
		return errLinked
	}
	l.session = s
	l.mu.Unlock()
	if before != nil {
		before.fail(errReplaced)
	}
	var err error
	select {
	case l.running <- struct{}{}:
		return nil
	case <-s.stop:
		err = s.err
	case <-ctx.Done():
		err = errRunning
	}
	l.drop(s)
	return err
}

// leave ends s, which has entered.
func (l *link) leave(s *session) {
	<-l.running
	l.drop(s)
}

// drop takes s out.
func (l *link) drop(s *session) {
	l.mu.Lock()
	if l.session == s {
		l.session = nil
	}
	s.out.fail(fmt.Errorf("%w: node %d (%s)", ErrLinkDown, l.node, l.name))
	l.mu.Unlock()
	close(s.done)
}

// resume prepares to send what the peer does not have.
func (l *link) resume(h hello) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errRemoved
	}
	if err := l.out.rewind(h.received); err != nil {
		return fmt.Errorf("%w: %w", errSequence, err)
	}
	l.release()
	return nil
}

var errSequence = errors.New("the ends disagree on what was received")

// release ends the waits for what is acknowledged now. It is called under mu.
func (l *link) release() {
	n := 0
	for _, w := range l.waiters {
		if w.number <= l.out.acked {
			close(w.done)
			continue
		}
		l.waiters[n] = w
		n++
	}
	l.waiters = l.waiters[:n]
}

// flush waits until all that is queued now is acknowledged. It returns false if ctx ends
// first.
func (l *link) flush(ctx context.Context) bool {
	flushed := l.flushed()
	select {
	case <-flushed:
		return true
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters = slices.DeleteFunc(l.waiters, func(w waiter) bool { return w.done == flushed })
	return false
}

// flushed returns a channel that is closed when all that is queued now is
// acknowledged.
func (l *link) flushed() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := waiter{number: l.out.last, done: make(chan struct{})}
	if l.closed || l.out.messages() == 0 {
		close(w.done)
		return w.done
	}
	l.waiters = append(l.waiters, w)
	if l.session != nil {
		l.session.pingDue = true // the answer comes with an acknowledgement
		l.wakeWriter()
	}
	return w.done
}

// begin notes that s is in use. First it sends a padding and a ping.
func (l *link) begin(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = s
	s.paddingDue, s.pingDue = true, true
}

// prove notes that the first ping of s is answered, and reports whether that brings the
// link up: see padding. It is called under mu.
func (l *link) prove(s *session) bool {
	if l.up || l.active != s {
		return false
	}
	l.up, l.since = true, time.Now()
	l.failures, l.lastErr, l.logged = 0, nil, time.Time{}
	l.connects++
	l.t.linkChanged()
	return true
}

// end notes that s, the active connection, has ended, and why.
func (l *link) end(s *session, err error) {
	l.mu.Lock()
	wasUp := l.up
	l.active, l.up, l.ended = nil, false, time.Now()
	l.rttSamples = 0
	l.rtt.Store(0)
	unproved := !wasUp && s.beats >= pingBeats
	if wasUp {
		l.since, l.lastErr = l.ended, err
	}
	l.mu.Unlock()
	switch {
	case l.ctx.Err() != nil && !wasUp: // it is no longer needed
	case wasUp:
		l.t.linkChanged()
		// It may be no fault: the other gateway may just be leaving.
		level := slog.LevelInfo
		if errors.Is(err, errRemoved) {
			level = slog.LevelDebug // the log of views says so already
		}
		l.t.config.Logger.LogAttrs(l.ctx, level, "link down", append(l.attrs(), slog.String("reason", downReason(err)))...)
	case unproved:
		l.failed(fmt.Errorf("connected, but long packets do not pass both ways (the network's MTU?): %w", err))
	default:
		l.failed(err)
	}
}

func downReason(err error) string {
	if errors.Is(err, io.EOF) {
		return "the other gateway has closed it"
	}
	return err.Error()
}

// failed notes that an attempt to dial failed. The first failures are expected when views
// arrive at different times, so only those that go on for a while are logged, once per
// minute.
func (l *link) failed(err error) {
	l.mu.Lock()
	l.failures++
	l.lastErr = err
	now := time.Now()
	due := now.Sub(l.since) >= time.Second && now.Sub(l.logged) >= oncelog.Period
	if due {
		l.logged = now
	}
	failures := l.failures
	l.mu.Unlock()
	if due {
		l.t.config.Logger.LogAttrs(l.ctx, slog.LevelWarn, "cannot reach peer", append(l.attrs(), slog.Any("error", err), slog.Int("attempts", failures))...)
	}
}

// sampleRTT adds a measured round-trip time to the estimate: the mean of the first eight,
// then a moving average by an eighth. It is called under mu.
func (l *link) sampleRTT(d time.Duration) {
	d = max(d, 1)
	l.rttSamples = min(l.rttSamples+1, 8)
	rtt := time.Duration(l.rtt.Load())
	rtt += (d - rtt) / time.Duration(l.rttSamples)
	l.rtt.Store(int64(max(rtt, 1)))
}

// downSince returns since when the link has been down; false if it is up. A connection
// without the proof that long packets pass does not count.
func (l *link) downSince() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, !l.up
}

func (l *link) status() LinkStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LinkStatus{
		Node: l.node, Name: l.name, Addr: l.addr,
		Up: l.up, Since: l.since, RTT: time.Duration(l.rtt.Load()),
		Queued:     l.out.messages(),
		Reconnects: max(l.connects, 1) - 1,
		Failures:   l.failures,
	}
	if l.lastErr != nil {
		s.Err = l.lastErr.Error()
	}
	return s
}

// attrs says which link it is, in logs.
func (l *link) attrs() []slog.Attr {
	p := l.peer()
	return []slog.Attr{slog.Uint64("peer_node", uint64(p.Node)), slog.String("peer", p.Name), slog.String("addr", p.Addr)}
}

func (t *Transport) linkChanged() {
	select {
	case t.changed <- struct{}{}:
	default: // a reader that has not come yet will see this change as well
	}
}

func (l *link) current() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// peer returns the other end as the view has it.
func (l *link) peer() Peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Peer{Node: l.node, Addr: l.addr, Name: l.name}
}
