package driver

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/peercert"
)

// wire has a connection for each pair of processes. A connection begins with who is at each end,
// filled up to greetingSize so that it is no connection before long packets pass. If both ends
// have dialed, the one of the lesser id stays.
type wire struct {
	id    core.ID
	name  string
	layer Layer
	lease time.Duration
	post  func(core.Event)

	closing context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
	conns   map[core.ID]*conn
}

const (
	greetingSize = 9 << 10
	// queued is how many messages wait for a connection; more are dropped.
	queued = 1024
	// maxFrame bounds a message in bytes.
	maxFrame = 64 << 20
)

// conn is a connection to a process.
type conn struct {
	net.Conn
	to     core.ID
	name   string
	dialer core.ID
	out    chan []byte
	ended  chan struct{}
	once   sync.Once
}

func newID() core.ID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return core.ID(binary.BigEndian.Uint64(b[:])>>1 | 1)
}

func newWire(id core.ID, name string, layer Layer, lease time.Duration, post func(core.Event)) *wire {
	w := &wire{id: id, name: name, layer: layer, lease: lease, post: post, conns: make(map[core.ID]*conn)}
	w.closing, w.cancel = context.WithCancel(context.Background())
	w.wg.Go(w.accept)
	return w
}

func (w *wire) close() error {
	w.cancel()
	err := w.layer.Close()
	w.mu.Lock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.wg.Wait()
	return err
}

func (w *wire) accept() {
	for {
		raw, err := w.layer.Accept()
		if err != nil {
			if w.closing.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		w.wg.Go(func() {
			if _, err := w.greet(raw, 0, "", time.Now().Add(w.lease)); err != nil {
				_ = raw.Close()
			}
		})
	}
}

// dial tries to reach a gateway.
func (w *wire) dial(d core.Dial) {
	w.wg.Go(func() {
		err := w.reach(d)
		w.post(core.Dialed{Name: d.Name, OK: err == nil})
	})
}

func (w *wire) reach(d core.Dial) error {
	began := time.Now()
	ctx, cancel := context.WithDeadline(w.closing, began.Add(d.Most))
	defer cancel()
	raw, err := w.layer.Dial(ctx, d.Addr)
	if err != nil {
		return err
	}
	if _, err := w.greet(raw, w.id, d.Name, began.Add(d.Most)); err != nil {
		return errors.Join(err, raw.Close())
	}
	return nil
}

// greet says who is here, hears who is there, and begins the connection. Dialer is this process
// if it has dialed, and name whom it means.
func (w *wire) greet(raw net.Conn, dialer core.ID, name string, by time.Time) (*conn, error) {
	stop := context.AfterFunc(w.closing, func() { _ = raw.Close() })
	defer stop()
	if err := raw.SetDeadline(by); err != nil {
		return nil, err
	}
	greeting := make([]byte, greetingSize)
	binary.BigEndian.PutUint64(greeting, uint64(w.id))
	binary.BigEndian.PutUint16(greeting[8:], uint16(len(w.name)))
	copy(greeting[10:], w.name)
	began := time.Now()
	wrote := make(chan error, 1)
	w.wg.Go(func() { _, err := raw.Write(greeting); wrote <- err })
	heard := make([]byte, greetingSize)
	_, err := io.ReadFull(raw, heard)
	if err = errors.Join(err, <-wrote); err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, to: core.ID(binary.BigEndian.Uint64(heard)), dialer: dialer, out: make(chan []byte, queued), ended: make(chan struct{})}
	n := min(int(binary.BigEndian.Uint16(heard[8:])), greetingSize-10)
	c.name = string(heard[10 : 10+n])
	if dialer == 0 {
		c.dialer = c.to
	}
	if name != "" && c.name != name || c.to == w.id || c.to == 0 {
		return nil, fmt.Errorf("membership: %q is there in place of %q", c.name, name)
	}
	if err := errors.Join(peercert.OfConn(raw, c.name), raw.SetDeadline(time.Time{})); err != nil {
		return nil, err
	}
	if !w.begin(c, time.Since(began)) {
		_ = raw.Close() // there is another one
	}
	return c, nil
}

// begin takes a connection into use, unless there is one that stays.
func (w *wire) begin(c *conn, trip time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.conns[c.to]; old != nil {
		if old.dialer < c.dialer {
			return false
		}
		w.drop(old)
	}
	if w.closing.Err() != nil {
		return false
	}
	w.conns[c.to] = c
	w.post(core.Connected{To: c.to, Name: c.name, Trip: trip})
	w.wg.Go(func() { w.read(c) })
	w.wg.Go(func() { w.write(c) })
	return true
}

// drop ends a connection. The caller holds mu.
func (w *wire) drop(c *conn) {
	c.once.Do(func() { close(c.ended) })
	_ = c.Close()
	if w.conns[c.to] == c {
		delete(w.conns, c.to)
		w.post(core.Disconnected{From: c.to})
	}
}

func (w *wire) end(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(c)
}

// read passes on what comes. A connection on which nothing comes is dead.
func (w *wire) read(c *conn) {
	defer w.end(c)
	in := bufio.NewReaderSize(c, 16<<10)
	for {
		if c.SetReadDeadline(time.Now().Add(w.lease*5/8)) != nil {
			return
		}
		var head [4]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(head[:])
		if n == 0 {
			continue
		}
		if n > maxFrame {
			return
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(in, data); err != nil {
			return
		}
		m, err := core.DecodeMessage(data)
		if err != nil {
			return
		}
		if !w.pass(c, m) {
			return
		}
	}
}

// pass passes a message on, unless its connection has ended: then that has been said.
func (w *wire) pass(c *conn, m core.Message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns[c.to] != c {
		return false
	}
	w.post(core.Received{From: c.to, Message: m})
	return true
}

// write sends what waits, and a sign of life if nothing does.
func (w *wire) write(c *conn) {
	defer w.end(c)
	beat := time.NewTicker(w.lease / 6)
	defer beat.Stop()
	for {
		var data []byte
		select {
		case <-c.ended:
			return
		case data = <-c.out:
		case <-beat.C:
		}
		frame := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(data)), uint32(len(data))), data...)
		if c.SetWriteDeadline(time.Now().Add(w.lease*5/8)) != nil {
			return
		}
		if _, err := c.Write(frame); err != nil {
			return
		}
	}
}

// send puts a message on its way, or drops it.
func (w *wire) send(s core.Send) {
	w.mu.Lock()
	c := w.conns[s.To]
	w.mu.Unlock()
	if c == nil {
		return
	}
	data, err := s.Message.Encode()
	if err != nil {
		return
	}
	select {
	case c.out <- data:
	default:
	}
}
