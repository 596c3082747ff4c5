package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/transport/wire"
)

// To says which gateway something is for, and where it may be.
type To struct {
	Name string
	Addr string // host:port of its peer port; empty: it is not dialled
}

// Caller is the gateway at the other end of a connection.
type Caller struct {
	Name string
	s    *session
}

// RTT returns the smoothed round-trip time to the gateway, 0 while it is unknown.
func (c Caller) RTT() time.Duration {
	if c.s == nil {
		return 0
	}
	c.s.p.mu.Lock()
	defer c.s.p.mu.Unlock()
	return c.s.wire.RTT()
}

// Change says what has become of the connection to another process.
type Change struct {
	Name string
	// Boot is the process's, new for each start.
	Boot string
	// Up: there is a connection. Proved: long packets pass over it both ways.
	Up, Proved bool
	// Err is why the connection has ended.
	Err error
}

// Question is what a [Transport.Call] asks. It goes before the pools' messages; what of its body and of
// the answer is longer than 31 KiB goes after everything else.
type Question struct {
	Name string
	Body []byte
	// InTurn: it is asked when those of its name that came before are answered.
	InTurn bool
	// Limit bounds the answer in bytes. 0: 31 KiB.
	Limit int
}

// Call asks another gateway, and waits for the answer. If there is no connection it dials, and
// waits for it. It returns ErrLinkDown if the connection ends before the answer comes,
// ErrUnknownCall, or an error with the words of the gateway that failed. Of bodies of more than 31 KiB a gateway that neither has
// this one in its view nor keeps a connection to it takes one of 256 KiB at a time. When ctx ends, so does the call, and its
// ctx at the other end.
//
// Over TLS no other gateway gets the question or can answer it, whatever is at the address.
func (t *Transport) Call(ctx context.Context, to To, q Question) ([]byte, error) {
	p, release, err := t.reach(ctx, to, 1)
	if err != nil {
		return nil, err
	}
	defer release()
	call := &wire.Call{Name: callName + q.Name, Body: q.Body, InTurn: q.InTurn, Limit: q.Limit}
	p.mu.Lock()
	s := p.session
	if s == nil || !s.open {
		p.mu.Unlock()
		return nil, fmt.Errorf("%w: %s", ErrLinkDown, to.Name)
	}
	return s.ask(ctx, call)
}

// Calls and payloads have names of their own.
const (
	callName    = "call/"
	payloadName = "link/"
)

// linger is how long a connection that only calls needed stays after the last of them.
const linger = 30 * time.Second

// reach returns a process to which there is a connection, and what to call when that is no
// longer needed. Until then so many more have to do with it.
func (t *Transport) reach(ctx context.Context, to To, keep int) (p *process, release func(), err error) {
	if to.Name == t.config.Name {
		return nil, nil, fmt.Errorf("%w: %s is this gateway", ErrUnknownPeer, to.Name)
	}
	if p = t.use(to.Name); p == nil {
		return nil, nil, ErrClosed
	}
	p.mu.Lock()
	if p.link == nil && to.Addr != "" {
		p.addr = to.Addr
	}
	p.want()
	p.keep(keep)
	ready := p.ready
	p.mu.Unlock()
	release = func() {
		p.mu.Lock()
		p.keep(-keep)
		p.release(linger)
		p.mu.Unlock()
		t.leave(p)
	}
	ctx, cancel := context.WithTimeout(ctx, t.config.dialTimeout)
	defer cancel()
	select {
	case <-ready:
		return p, release, nil
	case <-ctx.Done():
	case <-t.ctx.Done():
	}
	p.mu.Lock()
	err = p.failing.err
	p.mu.Unlock()
	release()
	return nil, nil, errors.Join(fmt.Errorf("%w: %s", ErrLinkDown, to.Name), err, ctx.Err())
}

// ask sends a call and waits for its answer. It is called under the process's lock, which it
// lets go.
func (s *session) ask(ctx context.Context, call *wire.Call) ([]byte, error) {
	done := make(chan answer, 1)
	call.User = done
	err := s.wire.Call(call)
	if err == nil {
		s.flushSoon(false)
	}
	s.p.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("call of %s: %w", s.p.name, err)
	}
	select {
	case a := <-done:
		return a.result(s.p.name)
	case <-ctx.Done():
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.p.session == s {
		s.wire.Cancel(call)
		s.wakeWriter()
	}
	return nil, fmt.Errorf("call of %s: %w", s.p.name, context.Cause(ctx))
}

// result returns what a call returns.
func (a answer) result(name string) ([]byte, error) {
	switch {
	case a.err != nil:
		return nil, a.err
	case a.status == wire.StatusOK:
		return a.data, nil
	case a.status == wire.StatusUnknown:
		return nil, fmt.Errorf("%w: %s", ErrUnknownCall, name)
	case a.status == wire.StatusFailed:
		return nil, fmt.Errorf("%w: %s: %.400s", errFailed, name, a.data)
	case a.status == wire.StatusTooLong:
		return nil, fmt.Errorf("%w: %s: the answer is too long", errFailed, name)
	default:
		return nil, fmt.Errorf("%w: %s: it is too busy", errFailed, name)
	}
}

// sendDatagram sends a datagram to a process if there is a connection. It never blocks. An error says
// that it was dropped; it can be lost later, if the connection ends. Raft's are urgent.
func (t *Transport) sendDatagram(name string, ch wire.Channel, data []byte) error {
	t.procs.Lock()
	p := t.processes[name]
	t.procs.Unlock()
	if p == nil {
		return fmt.Errorf("%w: %s", ErrLinkDown, name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.session
	if s == nil || !s.open {
		return fmt.Errorf("%w: %s", ErrLinkDown, name)
	}
	if err := s.wire.Send(ch, data); err != nil {
		return fmt.Errorf("datagram to %s: %w", name, err)
	}
	s.flushSoon(ch == wire.Raft)
	return nil
}

// Keep keeps a connection to a process, until the function that it returns is called.
func (t *Transport) Keep(to To) (release func()) {
	if to.Name == t.config.Name {
		return func() {}
	}
	p := t.use(to.Name)
	if p == nil {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil {
		p.addr = to.Addr
	}
	p.want()
	p.keep(1)
	return func() {
		p.mu.Lock()
		p.keep(-1)
		p.release(0)
		p.mu.Unlock()
		t.leave(p)
	}
}
