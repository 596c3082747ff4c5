package wire

import (
	"fmt"
)

const (
	// maxStreams bounds the streams that one end has opened and that have not ended.
	maxStreams = 64
	// streamWindow bounds the bytes of a stream, in each direction, that its reader has not
	// read.
	streamWindow = 64 << 10
)

// Stream is a stream of bytes in both directions.
type Stream struct {
	Name string
	// User is the user's.
	User any

	id       uint64
	credit   int // bytes that may still be sent
	granted  int // bytes that the other end may still send
	read     int // bytes that were read here and not yet granted again
	out      *source
	finished bool // the other end has written its last
	ended    bool // this end has
	// abandoned: nobody reads here any more.
	abandoned bool
}

// Open opens a stream. The other end may end it at once.
func (c *Conn) Open(name string, user any) (*Stream, error) {
	switch {
	case name == "" || len(name) > MaxName:
		return nil, fmt.Errorf("%w: the name has %d bytes, not 1 to %d", ErrCall, len(name), MaxName)
	case c.myStreams == maxStreams:
		return nil, fmt.Errorf("%w: %d streams", ErrFull, maxStreams)
	}
	s := c.newStream(c.nextID(), name)
	s.User = user
	c.myStreams++
	c.normal.frames = appendStream(c.normal.frames, s.id, name)
	return s, nil
}

func (c *Conn) newStream(id uint64, name string) *Stream {
	s := &Stream{Name: name, id: id, credit: streamWindow, granted: streamWindow}
	c.streams[id] = s
	return s
}

// takeStream takes in a stream that the other end opens.
func (c *Conn) takeStream(f *frame) error {
	if err := c.taken(f.id); err != nil {
		return err
	}
	if c.theirStreams == maxStreams {
		return fmt.Errorf("%w: more than %d streams", ErrProtocol, maxStreams)
	}
	c.theirStreams++
	c.event(Event{Kind: Opened, Stream: c.newStream(f.id, c.name(f.name))})
	return nil
}

// Write queues bytes of a stream, as many as its window takes, and returns how many. A Writable
// event says when there is room again.
func (c *Conn) Write(s *Stream, b []byte) int {
	n := min(len(b), s.credit)
	if n == 0 || s.ended || c.streams[s.id] != s {
		return 0
	}
	s.credit -= n
	if s.out == nil {
		s.out = &source{id: s.id, stream: s}
		c.data = append(c.data, s.out)
	}
	s.out.rest = append(s.out.rest, b[:n]...)
	return n
}

// finish ends this end's writing, after what was written before.
func (c *Conn) finish(s *Stream) {
	if s.ended || c.streams[s.id] != s {
		return
	}
	s.ended = true
	if s.out == nil {
		s.out = &source{id: s.id, stream: s}
		c.data = append(c.data, s.out)
	}
}

// Read notes that the stream's user has read so many bytes.
func (c *Conn) Read(s *Stream, n int) {
	if s.read += n; s.read >= streamWindow/2 && c.streams[s.id] == s && !s.finished {
		c.urgentOut.frames = appendNumbers(c.urgentOut.frames, typeCredit, s.id, uint64(s.read))
		s.granted += s.read
		s.read = 0
	}
}

// Abandon ends this end's writing, after what was written before, and then the stream: what the
// other end still writes is dropped.
func (c *Conn) Abandon(s *Stream) {
	s.abandoned = true
	c.finish(s)
	c.settle(s)
}

// reset ends a stream at once in both directions.
func (c *Conn) reset(s *Stream) {
	if c.streams[s.id] == s {
		c.dropData(s.id)
		if c.ours(s.id) { // not before the stream itself
			c.normal.frames = appendNumbers(c.normal.frames, typeCancel, s.id)
		} else {
			c.cancels = append(c.cancels, s.id)
		}
		c.endStream(s)
	}
}

func (c *Conn) resetByPeer(s *Stream) {
	c.dropData(s.id)
	c.endStream(s)
	c.event(Event{Kind: Closed, Stream: s})
}

func (c *Conn) endStream(s *Stream) {
	delete(c.streams, s.id)
	if c.ours(s.id) {
		c.myStreams--
	} else {
		c.theirStreams--
	}
}

// settle ends a stream that both ends have finished, or this one has abandoned.
func (c *Conn) settle(s *Stream) {
	switch {
	case !s.ended || s.out != nil || c.streams[s.id] != s:
	case s.finished:
		c.endStream(s)
	case s.abandoned:
		c.reset(s)
	}
}
