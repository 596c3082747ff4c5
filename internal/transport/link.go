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
	errRunning  = errors.New("the peer's last connection has not ended: its messages are still being taken in")
)

// link is what two incarnations share, over all connections between them.
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
	// session is the newest connection; those before it have been told to
	// end.
	session *session
	// active is the connection in use; nil: the link is down.
	active     *session
	since      time.Time
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
		since:   time.Now(),
		out:     outbox{maxMessages: t.config.QueueMessages, maxBytes: t.config.QueueBytes},
	}
	l.ctx, l.cancel = context.WithCancel(t.ctx)
	return l
}

// dials reports whether this end is the one that dials, unless that does not
// work.
func (l *link) dials() bool { return l.self < l.node }

func (l *link) update(p Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name, l.addr = p.Name, p.Addr
}

// send queues m, and writes it if the link has been quiet.
func (l *link) send(pool string, m *kmutex.Message) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return fmt.Errorf("%w: node %d", ErrUnknownPeer, l.node)
	}
	err := l.out.put(pool, m)
	switch s := l.active; {
	case err != nil:
	case s != nil && s.quiet():
		s.writeNow()
	default:
		l.wakeWriter()
	}
	l.mu.Unlock()
	if errors.Is(err, errOverflow) {
		l.t.refusals.add(CauseOverflow, err, l.attrs()...)
	}
	return err
}

// wakeWriter is called under mu.
func (l *link) wakeWriter() {
	if s := l.active; s != nil && s.idle {
		s.idle = false
		s.wake <- struct{}{} // there is room: it waits for this one
	}
}

// close drops the link, and returns what it had never sent. It does not wait.
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

// enter makes s the link's session, once the one before has ended: from then
// on received stands still until s reads. If only is set, it fails with errLinked
// when there is one. It waits until ctx ends, as long as a Handler may block, or until
// a newer connection takes the place of s: so one connection waits, however often
// the peer connects.
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

// resume makes ready to send what the peer does not have.
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

// release lets those go that wait for what is acknowledged now. It is called
// under mu.
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

// flush waits until all that is queued now is acknowledged, and reports whether it is:
// ctx may end before.
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

// beat sends a ping if nothing has arrived for a ping interval, and ends a connection
// on which nothing arrives for longer. The peer does the same, a beat later if it was dialed:
// what an end hears, a ping or its answer, saves its own. One-way loss
// shows at the end that hears nothing. An end that waits for an acknowledgement is less
// patient: something may depend on it.
func (l *link) beat() {
	l.mu.Lock()
	s := l.session
	if s == nil || l.active == nil {
		l.mu.Unlock()
		return
	}
	s.beats++
	s.silent++
	if s.heard.Swap(false) {
		s.silent = 0
	}
	waits := l.out.messages() > 0 || s.out.pending()
	switch {
	case !waits:
		s.unackedBeats = 0
	case s.silent == 0:
		s.unackedBeats = 1
	default:
		s.unackedBeats++
	}
	// What it waits for may have been sent just before the first of those beats.
	dead := s.silent >= deadBeats || s.unackedBeats > pingBeats
	patience := pingBeats
	if !l.dials() {
		patience++
	}
	if s.silent >= patience || waits && s.silent > 0 || s.beats%rttBeats == 0 {
		s.pingDue = true
		l.wakeWriter()
	}
	l.mu.Unlock()
	if dead {
		s.fail(errSilent)
	}
}

// A link counts time in beats. Those of all links come at the same moments: a process
// that is idle wakes up as seldom as it can.
const (
	// pingBeats make a ping interval, and deadBeats without a byte end a connection;
	// one on which an acknowledgement is due ends after pingBeats since it is.
	pingBeats = 4
	deadBeats = 6
	// rttBeats is how long a busy link goes without measuring its round trip.
	rttBeats = 48
)

var errSilent = errors.New("the peer has been silent for too long")

// wentUp notes that s is in use.
func (l *link) wentUp(s *session) {
	l.mu.Lock()
	l.active, l.since = s, time.Now()
	l.t.linkChanged()
	l.failures, l.lastErr, l.logged = 0, nil, time.Time{}
	l.connects++
	s.pingDue = true
	l.mu.Unlock()
	l.t.config.Logger.LogAttrs(l.ctx, slog.LevelInfo, "link up", append(l.attrs(), slog.String("remote", s.raw.RemoteAddr().String()))...)
}

// wentDown notes why s has ended.
func (l *link) wentDown(err error) {
	l.mu.Lock()
	l.active, l.since = nil, time.Now()
	l.rttSamples = 0
	l.rtt.Store(0)
	l.lastErr = err
	l.mu.Unlock()
	l.t.linkChanged()
	// Whether it is a fault the views tell: the other gateway may just be leaving.
	l.t.config.Logger.LogAttrs(l.ctx, slog.LevelInfo, "link down", append(l.attrs(), slog.String("reason", downReason(err)))...)
}

func downReason(err error) string {
	if errors.Is(err, io.EOF) {
		return "the other gateway has closed it"
	}
	return err.Error()
}

// failed notes that an attempt to dial failed. The first is expected when
// views arrive at different times, so only those that go on for a while are
// logged, once per minute.
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

// sampleRTT takes a measured round-trip time into the estimate: the mean of
// the first eight, then moving by an eighth. It is called under mu.
func (l *link) sampleRTT(d time.Duration) {
	d = max(d, 1)
	l.rttSamples = min(l.rttSamples+1, 8)
	rtt := time.Duration(l.rtt.Load())
	rtt += (d - rtt) / time.Duration(l.rttSamples)
	l.rtt.Store(int64(max(rtt, 1)))
}

// downSince returns since when the link has been down; false if it is up.
func (l *link) downSince() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, l.active == nil
}

func (l *link) status() LinkStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LinkStatus{
		Node: l.node, Name: l.name, Addr: l.addr,
		Up: l.active != nil, Since: l.since, RTT: time.Duration(l.rtt.Load()),
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
	l.mu.Lock()
	defer l.mu.Unlock()
	return []slog.Attr{slog.Uint64("peer_node", uint64(l.node)), slog.String("peer", l.name), slog.String("addr", l.addr)}
}
