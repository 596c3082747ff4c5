package wire

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"
)

// path is one direction of a connection: a queue without end before so many bytes a second, and the
// time that each takes from there. Urgent bytes stand in the same queue.
type path struct {
	rate  int // bytes a second
	delay time.Duration
	queue []byte
	fly   []flight
	may   float64
	// carried counts bytes.
	carried int
}

type flight struct {
	due  time.Duration
	data []byte
}

// run lets the ends talk over the paths for so long, in steps of a millisecond. Each step each end
// writes all that it has to say. Then event is called for what has happened.
func run(t *testing.T, ends [2]*Conn, paths [2]*path, from, lasts time.Duration, step func(now time.Duration), event func(now time.Duration, end int, e Event)) time.Duration {
	t.Helper()
	var in [2][]byte
	for now := from; now < from+lasts; now += time.Millisecond {
		step(now)
		for i, c := range ends {
			for c.Due() {
				b, _ := c.Fill(now, nil, MaxBatch)
				if len(b) == 0 {
					t.Fatal("due, and nothing to write")
				}
				paths[i].queue = append(paths[i].queue, b...)
			}
			if err := c.Tick(now); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range paths {
			p.may = min(p.may+float64(p.rate)/1000, float64(len(p.queue)))
			n := int(p.may)
			p.may -= float64(n)
			p.carried += n
			p.fly = append(p.fly, flight{now + p.delay, p.queue[:n:n]})
			p.queue = p.queue[n:]
			for len(p.fly) > 0 && p.fly[0].due <= now {
				in[1-i] = append(in[1-i], p.fly[0].data...)
				p.fly = p.fly[1:]
			}
			used, events, err := ends[1-i].Receive(now, in[1-i])
			if err != nil {
				t.Fatalf("at %v: %v", now, err)
			}
			messages := 0
			for _, e := range events {
				if e.Kind == Message {
					messages++
				}
				event(now, 1-i, e)
			}
			ends[1-i].Delivered(messages)
			in[1-i] = in[1-i][used:]
		}
	}
	return from + lasts
}

// What is urgent does not wait for what is long: behind messages without end, a payload of 64 MiB, or
// both, it waits no longer than the smallest windows take, or maxWait and a little. And the path stays busy.
func TestUrgentBehindBulk(t *testing.T) {
	const lasts = 3 * time.Second
	for _, c := range []struct {
		name           string
		rate           int
		delay          time.Duration
		messages, data bool
		most           time.Duration // for an urgent call, one way
		busy           float64
	}{
		{"messages at 1 MiB/s", 1 << 20, time.Millisecond, true, false, 160 * time.Millisecond, .9},
		{"both at 1 MiB/s", 1 << 20, time.Millisecond, true, true, 290 * time.Millisecond, .9},
		{"a payload at 100 MiB/s", 100 << 20, 100 * time.Microsecond, false, true, 20 * time.Millisecond, .9},
		{"both at 100 MiB/s", 100 << 20, 100 * time.Microsecond, true, true, 20 * time.Millisecond, .9},
		{"a payload over 100 ms", 100 << 20, 50 * time.Millisecond, false, true, 70 * time.Millisecond, .08}, // the window is 1 MiB
	} {
		t.Run(c.name, func(t *testing.T) {
			var ends [2]*Conn
			link := &Link{Self: 1, Peer: 2, MaxMessages: 1 << 20, MaxBytes: 64 << 20}
			for i := range ends {
				ends[i] = NewConn(0, i == 0, time.Second)
			}
			ends[0].SetLink(link)
			ends[1].SetLink(&Link{Self: 2, Peer: 1, MaxMessages: 1, MaxBytes: 1})
			body := make([]byte, MaxBody)
			paths := [2]*path{{rate: c.rate, delay: c.delay}, {rate: c.rate, delay: c.delay}}
			sent := make(map[string]time.Duration)
			var asked, came int
			var longest time.Duration
			step := func(now time.Duration) {
				for c.messages && link.last > 0 && len(link.buf)-link.next < 4<<20 || c.messages && now == 0 && link.last < 1000 {
					if err := link.Commit(append(link.Begin(), filler(1, 40)...)); err != nil {
						t.Fatal(err)
					}
				}
				if c.data && len(ends[0].data) == 0 {
					if err := ends[0].Call(&Call{Name: "long", Body: body}); err != nil {
						t.Fatal(err)
					}
				}
				if now >= time.Second && now%(50*time.Millisecond) == 0 {
					id := binary.BigEndian.AppendUint64(nil, uint64(now))
					sent[string(id)] = now
					asked++
					if err := ends[0].Call(&Call{Name: "renew", Body: id}); err != nil {
						t.Fatal(err)
					}
				}
			}
			received := 0
			run(t, ends, paths, 0, lasts, step, func(now time.Duration, end int, e Event) {
				switch {
				case e.Kind == Asked && e.Question.Name == "renew":
					came++
					longest = max(longest, now-sent[string(e.Question.Body)])
				case e.Kind == Message && end == 1:
					received += len(e.Data)
				}
				if e.Kind == Asked {
					ends[end].Answer(e.Question, StatusOK, nil)
				}
			})
			carried := float64(paths[0].carried) / (lasts.Seconds() * float64(c.rate))
			t.Logf("%d of %d urgent calls came, the slowest after %v; the path is busy %.0f %%, the window %d KiB", came, asked, longest, 100*carried, ends[0].size>>10)
			if came < asked-10 || longest > c.most {
				t.Errorf("want them within %v", c.most)
			}
			if carried < c.busy {
				t.Errorf("the path is busy %.2f of the time, want %.2f", carried, c.busy)
			}
		})
	}
}

// An end that answers pings and acknowledges nothing is given up; one whose messages take long to
// arrive, or are acknowledged in the end, is not.
func TestNeverAcknowledges(t *testing.T) {
	for _, c := range []struct {
		name     string
		rate     int
		size     int
		delivers time.Duration // this long after they come; never: not at all
		ends     bool
	}{
		{"at once", 1 << 20, 10, 0, false},
		{"after two intervals", 1 << 20, 10, 2 * time.Second, false},
		{"never", 1 << 20, 10, never, true},
		{"a message that takes ten seconds", 128 << 10, 10 * 128 << 10, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := NewConn(0, true, time.Second), NewConn(0, false, time.Second)
			link := &Link{Self: 1, Peer: 2, MaxMessages: 1000, MaxBytes: 8 << 20}
			a.SetLink(link)
			b.SetLink(&Link{Self: 2, Peer: 1})
			var err error
			var over time.Duration
			var queue, in []byte
			var due []time.Duration
			for now := time.Duration(0); now < 20*time.Second && err == nil; now += 10 * time.Millisecond {
				if link.Queued() == 0 {
					if err := put(link, link.last+1, c.size); err != nil {
						t.Fatal(err)
					}
				}
				for a.Due() {
					queue, _ = a.Fill(now, queue, len(queue)+MaxBatch)
				}
				n := min(len(queue), c.rate/100)
				in, queue = append(in, queue[:n]...), queue[n:]
				used, events, e := b.Receive(now, in)
				if e != nil {
					t.Fatal(e)
				}
				in = in[used:]
				for _, e := range events {
					if e.Kind == Message && c.delivers != never {
						due = append(due, now+c.delivers)
					}
				}
				for len(due) > 0 && due[0] <= now {
					b.Delivered(1)
					due = due[1:]
				}
				back, _ := b.Fill(now, nil, MaxBatch)
				if _, _, err := a.Receive(now, back); err != nil {
					t.Fatal(err)
				}
				if e := b.Tick(now); e != nil {
					t.Fatal(e)
				}
				err, over = a.Tick(now), now
			}
			if errors.Is(err, ErrSilent) != c.ends {
				t.Errorf("after %v: %v, with %d messages", over, err, link.last)
			}
			if !c.ends && link.acked == 0 {
				t.Error("no message was acknowledged")
			}
			if c.ends && over > 5*time.Second {
				t.Errorf("given up after %v", over)
			}
		})
	}
}

// What a stranger asks and does not read takes little memory.
func TestStrangerDoesNotRead(t *testing.T) {
	k := newTalk(t)
	k.ends[1].Stranger = true
	for i := range maxShort {
		if err := k.ends[0].Call(&Call{Name: "c", User: i}); err != nil {
			t.Fatal(err)
		}
	}
	b, _ := k.ends[0].Fill(0, nil, 1<<20)
	_, events, err := k.ends[1].Receive(0, b)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, e := range events {
		if e.Kind == Asked {
			k.ends[1].Answer(e.Question, StatusOK, make([]byte, fragment))
			kept += len(e.Question.answer)
		}
	}
	if kept > mostOfStranger {
		t.Errorf("%d bytes are kept", kept)
	}
}
