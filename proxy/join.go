package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/proxy/relay"
	"github.com/kgate/kgate/proxy/tcpstate"
	"github.com/kgate/kgate/proxy/upstream"
)

// joint leads bytes both ways between a client and an upstream: those of a TCP connection,
// or of a request whose upstream has agreed to an upgrade. It ends when both sides have
// ended, or one has failed.
type joint struct {
	said   []byte    // of the client, that was read already
	from   io.Reader // the client, behind that
	to     net.Conn  // the client
	raw    net.Conn  // its socket
	tunnel *upstream.Tunnel
	hold   *hold
	reset  func() // breaks both connections off

	since     time.Time     // when the slot was given
	firstByte time.Duration // from then to the upstream's first byte; 0: none has come
	up, down  int64         // bytes that have moved

	ended  atomic.Bool // the upstream has ended its side
	silent atomic.Bool // the client has ended its side, and the upstream knows
	once   sync.Once
	err    error // of the side that has failed; nil: both have ended in order
	broke  bool  // it was the upstream
}

// endTime is how long a client may be silent once the upstream has ended its side. Most
// close at once; one that does not would keep the slot for nothing.
const endTime = 2 * time.Second

// lead has the client at conn, of our server or not. What was said has been read from it.
func (j *joint) lead(conn net.Conn, said []byte) {
	j.said, j.from, j.to, j.raw = said, conn, conn, conn
	client, secure := unwrapConn(conn)
	if client == nil {
		return
	}
	client.settle()
	if j.raw = client.raw; secure == nil {
		j.to, j.from = client.raw, client.Conn // which has read on behind the PROXY header, if there is one
	}
}

// run copies both ways. When it returns both connections are closed.
func (j *joint) run() {
	upward := make(chan struct{})
	go func() {
		defer close(upward)
		j.failed(true, j.upward())
	}()
	j.failed(false, j.downward())
	<-upward
	if j.err == nil {
		j.tunnel.Finish()
	}
}

// failed ends both directions if one has failed.
func (j *joint) failed(up bool, err error) {
	if err == nil {
		return
	}
	j.once.Do(func() {
		var write *relay.WriteError
		// Who failed is at the end of the one direction where the other one begins.
		j.err, j.broke = err, up == errors.As(err, &write)
		j.reset()
	})
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
	switch {
	case errors.Is(err, errLost), errors.Is(err, upstream.ErrLapsed):
		j.hold.abort(errLost)
	case isTimeout(err) && j.ended.Load():
		return nil // the client had nothing more to say
	case err == nil && !j.ended.Load(): // else both are closed at once
		j.silent.Store(true)
		if err := j.tunnel.CloseWrite(); err != nil || j.ended.Load() {
			return err
		}
		return tcpstate.AwaitReset(j.raw) // or downward's end
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
	}
	err := s.Write(j.tunnel.Early())
	if err == nil {
		err = s.Run()
	}
	if err != nil {
		return err
	}
	if j.ended.Store(true); j.silent.Load() { // both are closed at once
		_ = j.to.SetReadDeadline(time.Now())
		return nil
	}
	_ = tcpstate.CloseWrite(j.to) // fails if the client has gone meanwhile
	_ = j.to.SetReadDeadline(time.Now().Add(endTime))
	return nil
}
