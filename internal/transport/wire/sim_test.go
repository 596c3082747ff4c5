package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// world is two processes and the wires between them, in virtual time. Each wire is what TCP
// makes of a path: bytes in order, or none, until the connection breaks.
type world struct {
	t     testing.TB
	rand  *rand.Rand
	now   time.Duration
	ends  [2]*end
	wires []*cable
	// What is wrong with the path from an end.
	mute   [2]bool // everything is lost
	narrow [2]bool // what is longer than a packet is lost, and all behind it
	slow   [2]bool // little is read
	number uint64
}

// cable is one connection below the hellos.
type cable struct {
	ends    [2]*side // of the ends
	dialler int
}

// side is one end of a cable.
type side struct {
	of       *end
	number   uint64
	conn     *Conn
	buf      []byte // received, not used
	fly      []byte // on the way to this side
	stuck    bool   // something long was lost on the way here
	closed   bool
	hello    bool // the other end's has come
	openedAt time.Duration
}

// end is one process.
type end struct {
	w        *world
	i        int
	pair     Pair
	link     *Link
	sides    []*side
	current  *side
	sent     uint64 // messages
	received uint64
	calls    map[*Call]bool
	lost     int // calls that ended with a connection
	answered int
	canceled int
	raft     [2]int // datagrams sent, received
	nextDial time.Duration
}

const interval = 500 * time.Millisecond

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 1))}
	for i := range w.ends {
		w.ends[i] = &end{
			w: w, i: i, pair: Pair{Lower: i == 0}, calls: make(map[*Call]bool),
			link: &Link{Self: uint64(i + 1), Peer: uint64(2 - i), MaxMessages: 1 << 16, MaxBytes: 32 << 20},
		}
	}
	return w
}

// dial has an end open a connection, if it has none.
func (e *end) dial() {
	w := e.w
	w.number++
	saw, ok := e.pair.Dial(w.number)
	if !ok {
		return
	}
	c := &cable{dialler: e.i}
	for i := range c.ends {
		c.ends[i] = &side{of: w.ends[i], openedAt: w.now}
	}
	mine := c.ends[e.i]
	mine.number = w.number
	e.use(mine, true)
	c.ends[1-e.i].fly = Hello{Name: "n", Boot: "b", Number: w.number, Saw: saw}.Append(nil)
	w.wires = append(w.wires, c)
}

// use makes s the connection of e.
func (e *end) use(s *side, dialled bool) {
	if e.current != nil {
		e.finish(e.current)
	}
	s.conn = NewConn(e.w.now, dialled, interval)
	s.conn.SetLink(e.link)
	e.current = s
	e.sides = append(e.sides, s)
}

func (e *end) finish(s *side) {
	s.closed = true
	e.pair.End(s.number)
	if e.current != s {
		return
	}
	e.current = nil
	calls, _ := s.conn.End()
	for _, c := range calls {
		if !e.calls[c] {
			e.w.t.Fatal("a call ended twice")
		}
		delete(e.calls, c)
		e.lost++
	}
}

// step moves time on.
func (w *world) step(d time.Duration) {
	w.now += d
	for _, e := range w.ends {
		if e.current == nil && w.now >= e.nextDial {
			e.nextDial = w.now + 20*time.Millisecond + time.Duration(w.rand.IntN(100))*time.Millisecond
			e.dial()
		}
	}
	for _, c := range w.wires {
		for i := range c.ends {
			w.write(c, i)
		}
		for i := range c.ends {
			w.read(c, i)
		}
	}
	live := w.wires[:0]
	for _, c := range w.wires {
		if !c.ends[0].closed || !c.ends[1].closed {
			live = append(live, c)
		}
	}
	w.wires = live
}

// write puts what an end has to say on its way.
func (w *world) write(c *cable, i int) {
	s, peer := c.ends[i], c.ends[1-i]
	if s.closed || s.conn == nil || !s.hello && c.dialler == i || len(peer.fly) > 256<<10 {
		return
	}
	for s.conn.Due() && len(peer.fly) < 256<<10 {
		b, _ := s.conn.Fill(w.now, nil, MaxBatch)
		if len(b) == 0 {
			w.t.Fatal("due, and nothing to write")
		}
		if peer.stuck {
			continue
		}
		if w.narrow[i] && len(b) > 1400 {
			peer.stuck = true // and so is all behind it
			continue
		}
		peer.fly = append(peer.fly, b...)
	}
}

// read hands an end what has arrived.
func (w *world) read(c *cable, i int) {
	s, peer := c.ends[i], c.ends[1-i]
	e := s.of
	if s.closed {
		return
	}
	if peer.closed && !w.mute[1-i] && len(s.fly) == 0 { // the end of the connection arrives
		if s.conn != nil {
			e.finish(s)
		}
		s.closed = true
		return
	}
	n := len(s.fly)
	if w.mute[1-i] {
		n = 0
	} else if w.slow[i] {
		n = min(n, 2000)
	}
	s.buf, s.fly = append(s.buf, s.fly[:n]...), s.fly[n:]
	if !s.hello && !w.greet(c, i) {
		return
	}
	if n > 0 && c.dialler != i && !e.pair.Confirm(s.number, "b") {
		return
	}
	var used int
	var events []Event
	var err error
	if n > 0 {
		used, events, err = s.conn.Receive(w.now, s.buf)
	}
	for _, ev := range events {
		e.take(s, ev)
	}
	s.conn.Delivered(1 << 30)
	s.buf = s.buf[used:]
	if err == nil {
		err = s.conn.Tick(w.now)
		if err != nil && !errors.Is(err, ErrSilent) {
			w.t.Fatal(err)
		}
	} else {
		w.t.Fatalf("at %v, end %d: %v", w.now, i, err)
	}
	if err != nil {
		e.finish(s)
	}
}

// greet takes in the other end's hello, and reports whether the connection goes on.
func (w *world) greet(c *cable, i int) bool {
	s := c.ends[i]
	e := s.of
	if w.now-s.openedAt > 2*time.Second {
		if s.conn != nil {
			e.finish(s)
		}
		s.closed = true
		return false
	}
	if len(s.buf) < 2 {
		return false
	}
	n, err := HelloSize(s.buf)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(s.buf) < 2+n {
		return false
	}
	h, err := DecodeHello(s.buf[2 : 2+n])
	if err != nil {
		w.t.Fatal(err)
	}
	s.buf = s.buf[2+n:]
	s.hello = true
	if c.dialler == i {
		return e.pair.Confirm(s.number, h.Boot)
	}
	w.number++
	s.number = w.number
	if _, ok := e.pair.Offer(s.number, h); !ok {
		s.closed = true
		return false
	}
	e.use(s, false)
	c.ends[1-i].fly = append(Hello{Name: "n", Boot: "b"}.Append(nil), c.ends[1-i].fly...)
	return true
}

func (e *end) take(s *side, ev Event) {
	switch ev.Kind {
	case Message:
		n := binary.BigEndian.Uint64(ev.Data)
		if e.received++; n != e.received {
			e.w.t.Fatalf("end %d: message %d, want %d", e.i, n, e.received)
		}
		if !bytes.Equal(ev.Data[8:], filler(n, len(ev.Data)-8)) {
			e.w.t.Fatalf("end %d: message %d is not what was sent", e.i, n)
		}
	case Asked:
		s.conn.Answer(ev.Question, StatusOK, append([]byte("re:"), ev.Question.Body...))
	case Answered:
		if !e.calls[ev.Call] {
			e.w.t.Fatal("a call is answered that has ended")
		}
		delete(e.calls, ev.Call)
		if ev.Call.canceled {
			e.canceled++
			return
		}
		if ev.Status != StatusOK || !bytes.Equal(ev.Data[3:], ev.Call.Body) {
			e.w.t.Fatalf("status %d, %d bytes for %d", ev.Status, len(ev.Data), len(ev.Call.Body))
		}
		e.answered++
	case Datagram:
		e.raft[1]++
	default: // changes nothing here
	}
}

// cancel gives up a call, at random.
func (e *end) cancel() {
	for c := range e.calls {
		if e.current != nil && e.current.conn.Cancel(c) {
			delete(e.calls, c)
		}
		return
	}
}

func filler(n uint64, size int) []byte { return bytes.Repeat([]byte{byte(n)}, size) }

// send queues a message of a random length.
func (e *end) send() {
	size := 20
	if e.w.rand.IntN(50) == 0 {
		size = e.w.rand.IntN(200_000)
	}
	e.sent++
	buf := append(binary.BigEndian.AppendUint64(e.link.Begin(), e.sent), filler(e.sent, size)...)
	if err := e.link.Commit(buf); err != nil {
		e.w.t.Fatal(err)
	}
}

func (e *end) ask() {
	if e.current == nil || len(e.calls) > 300 {
		return
	}
	size := e.w.rand.IntN(100)
	if e.w.rand.IntN(20) == 0 {
		size = e.w.rand.IntN(1 << 20)
	}
	c := &Call{Name: "c", Body: filler(7, size), InTurn: size%3 == 0, Limit: MaxBody}
	e.calls[c] = true
	if err := e.current.conn.Call(c); err != nil {
		e.w.t.Fatal(err)
	}
}

// TestLosesNothing breaks connections in every way, at random, while messages, calls and
// datagrams go both ways. Messages arrive once and in order, each call ends once, and in the
// end there is one connection, over which everything comes through.
func TestLosesNothing(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		w := newWorld(t, seed)
		for range 400 {
			switch i := w.rand.IntN(2); w.rand.IntN(40) {
			case 0:
				w.mute[i] = !w.mute[i]
			case 1:
				w.narrow[i] = !w.narrow[i]
			case 2:
				w.slow[i] = !w.slow[i]
			case 3: // reset, at one end or both
				if s := w.ends[i].current; s != nil {
					w.ends[i].finish(s)
				}
			case 4:
				w.mute, w.narrow = [2]bool{}, [2]bool{}
			}
			for _, e := range w.ends {
				if w.rand.IntN(3) == 0 {
					e.send()
				}
				if w.rand.IntN(4) == 0 {
					e.ask()
				}
				if w.rand.IntN(10) == 0 {
					e.cancel()
				}
				if e.current != nil && w.rand.IntN(4) == 0 && e.current.conn.Send(Raft, filler(1, 1+w.rand.IntN(50_000))) == nil {
					e.raft[0]++
				}
			}
			w.step(time.Duration(w.rand.IntN(100)) * time.Millisecond)
		}
		w.mute, w.narrow, w.slow = [2]bool{}, [2]bool{}, [2]bool{}
		for range 400 {
			w.step(20 * time.Millisecond)
		}
		for i, e := range w.ends {
			other := w.ends[1-i]
			if e.received != other.sent || e.link.Queued() > 0 && e.link.Queued() >= ackMessages {
				t.Fatalf("seed %d: end %d has received %d of %d messages; %d queued", seed, i, e.received, other.sent, e.link.Queued())
			}
			if len(e.calls) > 0 {
				t.Fatalf("seed %d: end %d: %d calls have not ended", seed, i, len(e.calls))
			}
			if e.current == nil || !e.current.conn.Proved() || e.pair.State() != Open {
				t.Fatalf("seed %d: end %d has no connection: %v", seed, i, fmt.Sprint(e.pair))
			}
		}
		if open := len(w.wires); open != 1 {
			t.Fatalf("seed %d: %d connections", seed, open)
		}
	}
}
