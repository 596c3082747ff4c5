package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// talk is two ends without anything between them.
type talk struct {
	t     *testing.T
	now   time.Duration
	ends  [2]*Conn
	links [2]*Link
	got   [2][]Event
}

func newTalk(t *testing.T) *talk {
	k := &talk{t: t}
	for i := range k.ends {
		k.ends[i] = NewConn(0, i == 0, time.Second)
		k.links[i] = &Link{Self: uint64(i + 1), Peer: uint64(2 - i), MaxMessages: 1000, MaxBytes: 1 << 20}
		k.ends[i].SetLink(k.links[i])
	}
	k.settle()
	return k
}

// pass carries what one end writes at once to the other.
func (k *talk) pass(from int) int {
	k.t.Helper()
	b, _ := k.ends[from].Fill(k.now, nil, MaxBatch)
	used, events, err := k.ends[1-from].Receive(k.now, b)
	if err != nil || used != len(b) {
		k.t.Fatalf("%d of %d bytes: %v", used, len(b), err)
	}
	k.ends[1-from].Delivered(1 << 30)
	for _, e := range events {
		e.Data = bytes.Clone(e.Data)
		k.got[1-from] = append(k.got[1-from], e)
	}
	return len(b)
}

// settle passes everything that is to be written.
func (k *talk) settle() {
	for k.ends[0].Due() || k.ends[1].Due() {
		for i := range k.ends {
			if k.ends[i].Due() {
				k.pass(i)
			}
		}
	}
}

// last returns the last event of a kind at an end.
func (k *talk) last(end int, kind EventKind) *Event {
	k.t.Helper()
	for i := len(k.got[end]) - 1; i >= 0; i-- {
		if k.got[end][i].Kind == kind {
			return &k.got[end][i]
		}
	}
	k.t.Fatalf("no event %d at end %d", kind, end)
	return nil
}

// What is urgent is written before a payload of 64 MiB, though the other end reads nothing of
// it: one frame of data goes out at a time, and no more than a window in all.
func TestRaftOvertakes(t *testing.T) {
	k := newTalk(t)
	a := k.ends[0]
	if err := a.Call(&Call{Name: "long", Body: make([]byte, MaxBody)}); err != nil {
		t.Fatal(err)
	}
	written := 0
	for a.Due() {
		b, _ := a.Fill(0, nil, MaxBatch)
		if written += len(b); len(b) > maxFrame+100 {
			t.Fatalf("%d bytes at once", len(b))
		}
	}
	if written > minWindow+maxFrame+1000 {
		t.Errorf("%d bytes are written, and nothing is read", written)
	}
	err := errors.Join(put(k.links[0], 1, 10), a.Send(Gossip, []byte("gossip")), a.Send(Raft, []byte("raft")),
		a.Call(&Call{Name: "c"}))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := a.Fill(0, nil, MaxBatch)
	var kinds []frameType
	for ; len(b) > 0; b = b[frameSize(b):] {
		kinds = append(kinds, frameType(b[lengthSize]&^flagged))
	}
	want := []frameType{typeDatagram, typeDatagram, typeCall, typeMessage}
	if !slices.Equal(kinds, want) {
		t.Errorf("written in the order %v, want %v", kinds, want)
	}
}

func TestCalls(t *testing.T) {
	k := newTalk(t)
	long := filler(3, 5<<20)
	for _, c := range []struct {
		body, answer []byte
		limit        int
		status, want Status
	}{
		{nil, nil, 0, StatusOK, StatusOK},
		{filler(1, fragment), filler(2, fragment), 0, StatusOK, StatusOK},
		{long, long, MaxBody, StatusOK, StatusOK},
		{long, []byte("no"), 0, StatusFailed, StatusFailed},
		{nil, long, len(long), StatusOK, StatusOK},
		{nil, long, len(long) - 1, StatusOK, StatusTooLong},
	} {
		for end := range k.ends {
			call := &Call{Name: "c", Body: c.body, Limit: c.limit}
			if err := k.ends[end].Call(call); err != nil {
				t.Fatal(err)
			}
			k.settle()
			q := k.last(1-end, Asked).Question
			if q.Name != "c" || !bytes.Equal(q.Body, c.body) {
				t.Fatalf("%q with %d bytes was asked", q.Name, len(q.Body))
			}
			k.ends[1-end].Answer(q, c.status, c.answer)
			k.settle()
			e := k.last(end, Answered)
			if e.Call != call || e.Status != c.want || c.want != StatusTooLong && !bytes.Equal(e.Data, c.answer) {
				t.Errorf("status %d with %d bytes, want %d with %d", e.Status, len(e.Data), c.want, len(c.answer))
			}
			if k.ends[end].Owed() || k.ends[1-end].Owed() || len(k.ends[1-end].questions) > 0 {
				t.Error("something is left over")
			}
		}
	}
}

// However many calls there are, so many are under way at a time, and those that come in turn
// are one after the other.
func TestCallsWaitForPlaces(t *testing.T) {
	k := newTalk(t)
	for i := range maxShort + 10 {
		if err := k.ends[0].Call(&Call{Name: "c", User: i}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		for _, size := range []int{10, fragment + 1} {
			if err := k.ends[0].Call(&Call{Name: fmt.Sprint("turn", size), Body: filler(uint64(i), size), InTurn: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	k.settle()
	asked := 0
	for answered := map[*Question]bool{}; ; {
		n := len(answered)
		turns := map[string]int{}
		for _, e := range k.got[1] {
			if e.Kind == Asked && !answered[e.Question] {
				answered[e.Question] = true
				turns[e.Question.Name]++
				k.ends[1].Answer(e.Question, StatusOK, nil)
			}
		}
		if turns["turn10"] > 1 || turns[fmt.Sprint("turn", fragment+1)] > 1 {
			t.Errorf("under way at the same time: %v", turns)
		}
		if asked = len(answered); asked == n {
			break
		}
		k.settle()
	}
	if want := maxShort + 10 + 6; asked != want {
		t.Errorf("%d calls asked, want %d", asked, want)
	}
}

// An end that owes something is given up after one interval of silence, an end that owes nothing after 3/2.
func TestSilence(t *testing.T) {
	for _, owed := range []bool{true, false} {
		k := newTalk(t)
		a, tick := k.ends[0], time.Second/12
		if owed {
			if err := a.Call(&Call{Name: "c"}); err != nil {
				t.Fatal(err)
			}
		}
		a.Fill(0, nil, MaxBatch)
		var dead time.Duration
		for dead == 0 {
			k.now += tick
			if err := a.Tick(k.now); err != nil {
				if !errors.Is(err, ErrSilent) {
					t.Fatal(err)
				}
				dead = k.now
			}
			a.Fill(k.now, nil, MaxBatch)
		}
		want := time.Second + tick
		if !owed {
			want = time.Second * 3 / 2
		}
		if dead > want+tick || dead < want-tick {
			t.Errorf("owed %v: given up after %v, want %v", owed, dead, want)
		}
	}
}

// TestHostile: what no honest end says ends the connection.
func TestHostile(t *testing.T) {
	long := func(id uint64, size int) []byte { return appendCall(nil, id, "c", make([]byte, size)) }
	many := func(n int, f func(id uint64) []byte) (b []byte) {
		for i := range n {
			b = append(b, f(uint64(2*i+1))...)
		}
		return b
	}
	short := func(id uint64) []byte { return appendCall(nil, id, "c", nil) }
	for name, say := range map[string][]byte{
		"number of ours":            short(2),
		"number twice":              bytesOf(short(1), short(1)),
		"too many calls":            many(maxShort+1, short),
		"too many long ones":        many(maxLong+1, func(id uint64) []byte { return long(id, fragment+1) }),
		"too long together":         many(2, func(id uint64) []byte { return long(id, MaxBody/2+1) }),
		"data of nothing":           appendData(nil, 9, []byte("x")),
		"body beyond its end":       bytesOf(long(1, fragment+1), appendData(nil, 1, make([]byte, fragment+2)[:fragment]), appendData(nil, 1, []byte("xx"))),
		"empty data of a call":      bytesOf(long(1, fragment+1), appendData(nil, 1, nil)),
		"answer to nothing":         appendAnswer(nil, 2, StatusOK, nil),
		"read what was not written": appendNumbers(nil, typeCredit, 1),
		"acked what was not sent":   appendNumbers(nil, typeAck, 1),
		"answer to no ping":         appendNumbers(nil, typePong, 99),
		"a message without end":     many(MaxMessage/fragment+1, func(uint64) []byte { return seal(append(open(nil, typeMessage|flagged), make([]byte, fragment)...), 0) }),
		"a datagram without end": many(maxDatagram/fragment+1, func(uint64) []byte {
			return seal(append(open(nil, typeDatagram|flagged), make([]byte, fragment)...), 0)
		}),
	} {
		k := newTalk(t)
		if _, _, err := k.ends[1].Receive(0, say); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A stranger may send little, but for one longer call.
func TestStranger(t *testing.T) {
	for name, say := range map[string][]byte{
		"call":          appendCall(nil, 1, "c", make([]byte, longOfStranger+1)),
		"pair of calls": slices.Concat(appendCall(nil, 1, "c", make([]byte, fragment+1)), appendCall(nil, 3, "c", make([]byte, fragment+1))),
		"datagram":      appendDatagram(nil, Raft, make([]byte, fragment+1)),
		"row of calls": slices.Concat(appendCall(nil, 1, "c", make([]byte, fragment)), appendCall(nil, 3, "c", make([]byte, fragment)),
			appendCall(nil, 5, "c", make([]byte, 1))),
	} {
		for _, stranger := range []bool{false, true} {
			k := newTalk(t)
			k.ends[1].Stranger = stranger
			if _, _, err := k.ends[1].Receive(0, say); errors.Is(err, ErrProtocol) != stranger {
				t.Errorf("a long %s, stranger %v: %v", name, stranger, err)
			}
		}
	}
}

// What announces much and sends little takes little memory.
func TestAnnouncedTakesNoMemory(t *testing.T) {
	b := grow(nil, make([]byte, 100), MaxBody)
	if cap(b) > 1000 {
		t.Errorf("%d bytes taken for the first 100", cap(b))
	}
	for len(b) < 3<<20 {
		b = grow(b, make([]byte, fragment), MaxBody)
	}
	if cap(b) > 8<<20 {
		t.Errorf("%d bytes taken for %d", cap(b), len(b))
	}
}

// TestPair goes through the ways in which two ends get, lose and replace a connection.
func TestPair(t *testing.T) {
	hello := func(number, saw uint64) Hello { return Hello{Name: "x", Boot: "b", Number: number, Saw: saw} }
	t.Run("the lower end's wins when two cross", func(t *testing.T) {
		low, high := Pair{Lower: true}, Pair{}
		sawLow, _ := low.Dial(1)
		sawHigh, _ := high.Dial(1)
		if _, ok := low.Offer(2, hello(1, sawHigh)); ok {
			t.Error("the lower end takes the other's")
		}
		if replaced, ok := high.Offer(2, hello(1, sawLow)); !ok || replaced != 1 {
			t.Error("the higher end keeps its own")
		}
		if !low.Confirm(1, "b") || high.Confirm(1, "b") || !high.Confirm(2, "b") {
			t.Error("not the same connection at both ends")
		}
		if high.End(1) || !high.End(2) || high.State() != Down {
			t.Error("ended")
		}
	})
	t.Run("a hello that comes late changes nothing", func(t *testing.T) {
		low := Pair{Lower: true}
		low.Dial(5)
		low.Confirm(5, "b")
		if _, ok := low.Offer(6, hello(3, 4)); ok {
			t.Error("it is replaced by an older one")
		}
		if replaced, ok := low.Offer(6, hello(4, 5)); !ok || replaced != 5 {
			t.Error("it is kept, though the other end has lost it")
		}
		if _, ok := low.Offer(7, hello(3, 5)); ok {
			t.Error("it is replaced by an older one")
		}
	})
	t.Run("another process takes the place", func(t *testing.T) {
		low := Pair{Lower: true}
		low.Dial(5)
		low.Confirm(5, "b")
		if replaced, ok := low.Offer(6, Hello{Name: "x", Boot: "c", Number: 1}); !ok || replaced != 5 || low.boot != "c" {
			t.Error("it does not")
		}
	})
	t.Run("one at a time", func(t *testing.T) {
		var p Pair
		p.Offer(1, hello(1, 0))
		if _, ok := p.Dial(2); ok {
			t.Error("it dials beside a connection")
		}
	})
}
