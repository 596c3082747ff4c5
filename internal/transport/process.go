package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/oncelog"
	"github.com/kgate/kgate/internal/transport/wire"
)

var (
	errRemoved  = errors.New("the peer left the view")
	errReplaced = errors.New("the peer has connected again")
	errCrossed  = errors.New("there is a connection")
)

// process is another gateway's process: the connection to it, and what goes over it. A process
// that is started again under the same name takes the place of the one before.
type process struct {
	t     *Transport
	name  string
	users int // links, connections that it has opened, and others; guarded by t.procs
	mu    sync.Mutex
	addr  string // empty: it is not dialled
	pair  wire.Pair
	// session is the connection that lives; nil: there is none. It may be of use only when
	// the pair is open.
	session *session
	link    *link // nil: the process is no member of this gateway's view
	// wanted is who needs a connection; while it is not 0 a goroutine dials, until unwanted. Kept
	// is who of them has to do with the process, other than to gossip.
	wanted    int
	kept      int
	unwanted  context.CancelFunc
	idle      *time.Timer   // to lingers; nil: it has never been released for later
	lingers   time.Time     // until then it is dialled though nobody wants it
	ready     chan struct{} // closed while the pair is open
	ended     time.Time     // when the last connection did
	failing   failing
	questions questions
	waiting   arrivals
}

// failing is what is known of attempts to connect that have failed.
type failing struct {
	attempts int
	err      error
	since    time.Time // of the first
	logged   time.Time
}

// use returns the process of that name, for leave; nil after Close. If it is new it is not
// dialled.
func (t *Transport) use(name string) *process {
	t.procs.Lock()
	defer t.procs.Unlock()
	if t.ctx.Err() != nil {
		return nil
	}
	p := t.processes[name]
	if p == nil {
		p = &process{t: t, name: name, pair: wire.Pair{Lower: t.config.Name < name}, ready: make(chan struct{}), ended: time.Now()}
		t.processes[name] = p
	}
	p.users++
	return p
}

// stay is use of a process that somebody uses.
func (t *Transport) stay(p *process) {
	t.procs.Lock()
	defer t.procs.Unlock()
	p.users++
}

// leave forgets the process if nobody uses it.
func (t *Transport) leave(p *process) {
	t.procs.Lock()
	defer t.procs.Unlock()
	if p.users--; p.users == 0 {
		delete(t.processes, p.name)
	}
}

// keep notes that so many more have to do with the process. It is called under mu.
func (p *process) keep(more int) {
	if p.kept += more; p.kept > 0 && p.session != nil {
		p.session.wire.Stranger = false
	}
}

// open notes that the other end has the connection, too. It is called under mu.
func (p *process) open(s *session, boot string) bool {
	if !p.pair.Confirm(s.number, boot) {
		return false
	}
	if !s.open {
		s.open = true
		if p.link == nil {
			p.failing = failing{}
		}
		close(p.ready)
		p.t.tell(Change{Name: p.name, Boot: boot, Up: true})
	}
	return true
}

// replace makes s the process's connection, in place of the one before. It is called under mu.
func (p *process) replace(s *session) {
	if before := p.session; before != nil {
		p.finish(before, errReplaced)
	}
	p.session = s
	if p.link != nil {
		s.wire.SetLink(p.link.wire)
	}
}

// finish takes a connection out of use. It is called under mu, and may be called again.
func (p *process) finish(s *session, err error) {
	s.fail(err)
	if p.session != s {
		return
	}
	p.session, p.ended = nil, time.Now()
	p.pair.End(s.number)
	if s.open {
		p.ready = make(chan struct{})
		p.t.tell(Change{Name: p.name, Boot: s.boot, Err: err})
	}
	s.lose(err)
	p.review(s, err)
}

// end takes in that a connection has ended.
func (p *process) end(s *session, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish(s, err)
}

// current returns the connection, and whether it may be used.
func (p *process) current() (s *session, open bool, ready <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session, p.session != nil && p.session.open, p.ready
}

// review brings the state of the link up to date. Err is why it may be down. It is called
// under mu; s is the connection that is or was in use.
func (p *process) review(s *session, err error) {
	l := p.link
	if l == nil {
		return
	}
	linked, broken := false, error(nil)
	if p.session != nil {
		linked, broken = p.session.wire.Linked()
	}
	if broken != nil && l.broken == nil {
		p.t.refusals.add(CauseSequence, broken, l.attrs()...)
		p.failed(broken)
	}
	l.broken = broken
	up := linked && p.session.wire.Proved()
	if up == l.up {
		if !up && s != nil && p.session == nil && err != nil {
			if !s.wire.Proved() && s.ticks >= unprovedTicks {
				err = fmt.Errorf("connected, but long packets do not pass both ways (the network's MTU?): %w", err)
			}
			p.failed(err)
		}
		return
	}
	l.up, l.since = up, time.Now()
	if up {
		l.lastErr, p.failing = nil, failing{}
		l.rtt.Store(int64(p.session.wire.RTT())) // measured before, perhaps
		l.connects++
		p.t.config.Logger.LogAttrs(p.t.ctx, slog.LevelInfo, "link up", append(l.attrs(), slog.String("remote", p.session.raw.RemoteAddr().String()))...)
		return
	}
	l.rtt.Store(0)
	l.lastErr = err
	// It may be no fault: the other gateway may just be leaving.
	p.t.config.Logger.LogAttrs(p.t.ctx, slog.LevelInfo, "link down", append(l.attrs(), slog.String("reason", downReason(err)))...)
}

// unprovedTicks is after how many ticks a connection should have proved that long packets pass.
const unprovedTicks = 6

func downReason(err error) string {
	switch {
	case err == nil:
		return "the other gateway no longer serves it"
	case errors.Is(err, io.EOF):
		return "the other gateway has closed it"
	default:
		return err.Error()
	}
}

// expected is for how long attempts to connect may fail: views arrive at different times, a gateway is
// started again, and one that leaves stays for two seconds after others that leave.
const expected = 3 * time.Second

// failed notes that an attempt to connect failed. Failures that go on for a while are logged, once
// per minute. It is called under mu.
func (p *process) failed(err error) {
	now, f := time.Now(), &p.failing
	if f.attempts == 0 {
		f.since = now
	}
	f.attempts++
	f.err = err
	if now.Sub(f.since) < expected || now.Sub(f.logged) < oncelog.Period {
		return
	}
	f.logged = now
	p.t.config.Logger.LogAttrs(p.t.ctx, slog.LevelWarn, "cannot reach peer", append(p.attrs(), slog.Any("error", err), slog.Int("attempts", f.attempts))...)
}

// attrs says which process it is, in logs. It is called under mu.
func (p *process) attrs() []slog.Attr {
	if p.link != nil {
		return p.link.attrs()
	}
	return []slog.Attr{slog.String("peer", p.name), slog.String("addr", p.addr)}
}

func (p *process) lockedAttrs() []slog.Attr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attrs()
}

// lose ends what depends on a connection. It is called under the process's lock.
func (s *session) lose(why error) {
	calls, questions := s.wire.End()
	for _, call := range calls {
		ended(call, answer{err: fmt.Errorf("%w: %s: %w", ErrLinkDown, s.p.name, why)})
	}
	for _, q := range questions {
		if q, ok := q.User.(*question); ok {
			q.cancel()
		}
	}
	s.p.dropWaiting()
}

// dropWaiting forgets the payloads that wait: their connection has ended. It is called under the
// process's lock.
func (p *process) dropWaiting() {
	for _, q := range p.questions.payloads {
		p.forget(q)
	}
	p.questions.payloads = nil
}

// forget gives back the room of a question. The process is remembered until it has all of it. It is called under the process's lock.
func (p *process) forget(q *question) {
	q.cancel()
	p.questions.bytes -= len(q.Body)
	if p.questions.count--; p.questions.count == 0 {
		p.t.leave(p)
	}
}
