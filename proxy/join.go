package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/relay"
	"github.com/kgate/kgate/proxy/tcpstate"
	"github.com/kgate/kgate/proxy/upstream"
)

// joint copies bytes both ways between a client and an upstream: those of a TCP connection,
// or of a request whose upstream has agreed to an upgrade. It ends when both sides have
// ended, or one has failed.
type joint struct {
	said   []byte           // of the client, that was read already
	from   io.Reader        // the client, behind that
	to     net.Conn         // the client
	raw    net.Conn         // its socket
	below  *downstream.Conn // nil: the server is not ours
	tunnel *upstream.Tunnel
	hold   *hold
	reset  func()        // breaks both connections off
	rest   time.Duration // restTime, except in tests

	since     time.Time     // when the slot was given
	firstByte time.Duration // from then to the upstream's first byte; 0: none has come
	up, down  int64         // bytes that have moved

	ended  atomic.Bool   // the upstream has ended its side
	gone   atomic.Bool   // the client has reset its connection
	silent atomic.Bool   // the client has ended its side, and the upstream knows
	cut    atomic.Bool   // the upstream takes nothing more; what it has sent is on its way
	until  time.Time     // when that is given up; set before cut
	upDone chan struct{} // closed when upward has ended
	once   sync.Once
	err    error // of the side that has failed; nil: both have ended in order
	broke  bool  // it was the upstream, or what stands before it
}

// endTime is how long a client may be silent once the upstream has ended its side, and how
// long it may take nothing once the upstream has failed; restTime bounds how long it takes the
// rest then. Most close at once; one that does not would keep the slot for nothing. An upstream
// that has ended its side may take nothing for restTime: it is slow as a rule, and not gone.
const (
	endTime  = 2 * time.Second
	restTime = 15 * time.Second
)

// lastWords is how long the upstream may take to accept what a client has said before it reset
// its connection.
const lastWords = 50 * time.Millisecond

// lead sets the client's connection and what has been read from it. The one below it is nil
// if the server is not ours.
func (j *joint) lead(conn net.Conn, below *downstream.Conn, said []byte) {
	j.said, j.from, j.to, j.raw, j.below = said, conn, conn, conn, below
	if below != nil {
		j.raw = below.NetConn()
		j.from, j.to = below.Direct()
	}
}

// run copies both ways. When it returns both connections are closed.
func (j *joint) run() {
	if j.below != nil {
		j.below.WatchReset(j)
		defer j.below.Unwatch()
	}
	j.upDone = make(chan struct{})
	go func() {
		defer close(j.upDone)
		j.failed(true, j.upward())
	}()
	j.failed(false, j.downward())
	j.awaitUpward()
	switch {
	case j.err == nil:
		j.tunnel.Finish()
	case j.broke:
		_ = j.tunnel.Close()
		tcpstate.AwaitDelivered(j.raw, endTime, j.until)
		j.reset()
	}
}

// errNotTaken is the end of an upstream that has ended its side and takes nothing more.
var errNotTaken = errors.New("the upstream takes no more of what the client has said")

// awaitUpward waits until upward has ended, and what it has written has arrived.
func (j *joint) awaitUpward() {
	for done := false; !done; {
		select {
		case <-j.upDone:
			done = true
		case <-time.After(time.Second):
		}
		if j.ended.Load() && !j.tunnel.Drain(j.rest) {
			j.failed(true, &relay.WriteError{Err: errNotTaken})
			_ = j.tunnel.Close()
		}
	}
}

// ClientLeft implements downstream.Watcher: the client has reset its connection. A write to the
// upstream may wait for ever, and then nobody reads from the client. What the client has said
// before still goes to an upstream that takes it.
func (j *joint) ClientLeft() {
	j.gone.Store(true)
	_ = j.tunnel.Stream().SetWriteDeadline(time.Now().Add(lastWords))
}

// failed has the other direction end if one has failed: at once, but for what the upstream
// has sent before it failed. That still goes to the client.
func (j *joint) failed(up bool, err error) {
	if err == nil {
		return
	}
	j.once.Do(func() {
		var write *relay.WriteError
		// Who failed is at the end of the one direction where the other one begins.
		j.err, j.broke = err, up == errors.As(err, &write)
		j.until = time.Now().Add(j.rest)
		switch {
		case !j.broke || j.hold.check() != nil:
			j.reset()
		case up:
			j.cut.Store(true)
			j.hurry()
		default:
			_ = j.tunnel.Close()
			_ = j.to.SetReadDeadline(time.Now())
		}
	})
}

// hurry bounds how long the next piece of what the upstream has sent may take.
func (j *joint) hurry() {
	soon := time.Now().Add(endTime)
	if soon.After(j.until) {
		soon = j.until
	}
	_ = j.tunnel.Stream().SetReadDeadline(soon)
	_ = j.to.SetWriteDeadline(soon)
}

// upward copies from the client to the upstream.
func (j *joint) upward() error {
	s := relay.Stream{From: j.from, To: j.tunnel.Stream(), Take: j.hold.up.take, Unused: j.hold.up.unused}
	// This runs where the socket cannot be closed: it only looks.
	s.Check = func() error {
		if !j.hold.isValid() {
			return errLost
		}
		return j.tunnel.Check()
	}
	s.Moved = func(n int) {
		j.up += int64(n)
		j.hold.move()
		if j.ended.Load() {
			_ = j.to.SetReadDeadline(time.Now().Add(endTime))
		}
	}
	err := s.Write(j.said)
	if j.said = nil; err == nil {
		err = s.Run()
	}
	if err == nil && !j.ended.Load() { // else both are closed at once
		j.silent.Store(true)
		if failed := j.tunnel.CloseWrite(); failed != nil {
			err = &relay.WriteError{Err: failed}
		} else if !j.ended.Load() {
			return tcpstate.AwaitReset(j.raw) // or downward's end
		}
	}
	switch {
	case isTimeout(err) && j.gone.Load():
		return syscall.ECONNRESET
	case errors.Is(err, errLost), errors.Is(err, upstream.ErrLapsed):
		j.hold.abort(errLost)
	case isTimeout(err) && j.ended.Load():
		return nil // the client had nothing more to say
	}
	return err
}

// downward copies from the upstream to the client.
func (j *joint) downward() error {
	s := relay.Stream{From: j.tunnel.Stream(), To: j.to, Take: j.hold.down.take, Unused: j.hold.down.unused}
	s.Check = func() error { return nil } // an answer does no harm
	s.Moved = func(n int) {
		if j.down == 0 && n > 0 {
			j.firstByte = time.Since(j.since)
		}
		j.down += int64(n)
		j.hold.move()
		if j.cut.Load() {
			j.hurry()
		}
	}
	err := s.Write(j.tunnel.Early())
	if err == nil {
		err = s.Run()
	}
	switch {
	case err != nil:
		return err
	case !j.isWhole():
		return syscall.ECONNRESET
	}
	if j.ended.Store(true); j.silent.Load() { // both are closed at once
		_ = j.to.SetReadDeadline(time.Now())
		return nil
	}
	_ = tcpstate.CloseWrite(j.to) // fails if the client has gone meanwhile
	_ = j.to.SetReadDeadline(time.Now().Add(endTime))
	return nil
}

// isWhole reports whether the upstream's end was one in order. A connection that was reset
// ends like any other once a write to it has been told of the reset: then upward fails.
func (j *joint) isWhole() bool {
	if j.silent.Load() || !j.cut.Load() && !tcpstate.IsReset(j.tunnel.Stream()) {
		return true
	}
	select {
	case <-j.upDone:
		return errors.Is(j.err, syscall.EPIPE) // the end came before the reset
	case <-time.After(endTime):
		return false
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
