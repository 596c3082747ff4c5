package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/kmutex"
)

// received is one call of Receive.
type received struct {
	from    kmutex.Node
	topic   string
	payload []byte
}

// inbox is a Receive that keeps what comes.
type inbox struct {
	mu  sync.Mutex
	got []received
	err error
}

func (b *inbox) receive(from kmutex.Node, topic string, payload []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, received{from, topic, payload})
	return b.err
}

func (b *inbox) all() []received {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]received(nil), b.got...)
}

// randomBytes returns n bytes that differ with the seed.
func randomBytes(n int, seed uint64) []byte {
	b := make([]byte, n+8)
	r := rand.NewPCG(seed, 1)
	for i := 0; i < n; i += 8 {
		binary.BigEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n]
}

// The end that accepted the connection sends as the one that dialled it, while
// messages go both ways, and with TLS as without.
func TestPayloadsBothWays(t *testing.T) {
	pki := newPKI(t)
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			var in [2]inbox
			var order [2]*inOrder
			var ts [2]*Transport
			for i := range ts {
				order[i] = newInOrder(5000)
				c := Config{Receive: in[i].receive, Handler: order[i]}
				if secure {
					c.TLS = pki.peer(t)
				}
				ts[i] = listen(t, c)
			}
			join(ts[:]...)
			waitUp(t, ts[:]...)
			var wg sync.WaitGroup
			sizes := []int{1, 32 << 10, (32 << 10) + 1, 5 << 20, 12 << 20}
			for i := range ts {
				to := kmutex.Node(2 - i)
				wg.Go(func() { sendAll(t, ts[i], to, 5000) })
				wg.Go(func() {
					for _, n := range sizes {
						if err := ts[i].SendPayload(within(t), to, "report/p", randomBytes(n, uint64(n+i))); err != nil {
							t.Errorf("%d bytes to %d: %v", n, to, err)
						}
					}
				})
			}
			wg.Wait()
			for i := range ts {
				wait(t, "all messages", order[i].done)
				order[i].check(t, "messages")
				from := 1 - i
				got := in[i].all()
				if len(got) != len(sizes) {
					t.Fatalf("%d payloads received, want %d", len(got), len(sizes))
				}
				for j, n := range sizes {
					if got[j].from != kmutex.Node(from+1) || got[j].topic != "report/p" || !bytes.Equal(got[j].payload, randomBytes(n, uint64(n+from))) {
						t.Errorf("payload %d from %d about %q: %d bytes, want %d", j, got[j].from, got[j].topic, len(got[j].payload), n)
					}
				}
			}
		})
	}
}

// While Receive runs, messages are delivered; later payloads wait.
func TestReceiveDoesNotHoldUpMessages(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	at2 := newInOrder(100)
	t1 := listen(t, Config{})
	t2 := listen(t, Config{Handler: at2, Receive: func(kmutex.Node, string, []byte) error {
		once.Do(func() { close(began) })
		<-goOn
		return nil
	}})
	join(t1, t2)
	waitUp(t, t1, t2)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			if err := t1.SendPayload(within(t), 2, fmt.Sprint("topic", i), []byte("x")); err != nil {
				t.Error(err)
			}
		})
	}
	wait(t, "the first payload", began)
	sendAll(t, t1, 2, 100)
	wait(t, "all messages", at2.done)
	close(goOn)
	wg.Wait()
}

// Each topic keeps its order; one that is large does not keep others waiting.
func TestPayloadOrder(t *testing.T) {
	var in inbox
	t1, t2 := listen(t, Config{}), listen(t, Config{Receive: in.receive})
	join(t1, t2)
	waitUp(t, t1, t2)
	const topics, each = 40, 10
	var wg sync.WaitGroup
	for i := range topics {
		wg.Go(func() {
			for n := range each {
				if err := t1.SendPayload(within(t), 2, fmt.Sprint(i), randomBytes(1+n*10_000, uint64(n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	next := map[string]int{}
	for _, p := range in.all() {
		n := next[p.topic]
		if !bytes.Equal(p.payload, randomBytes(1+n*10_000, uint64(n))) {
			t.Errorf("topic %s: payload %d is not the one that was sent", p.topic, n)
		}
		next[p.topic]++
	}
	for i := range topics {
		if n := next[fmt.Sprint(i)]; n != each {
			t.Errorf("topic %d: %d payloads, want %d", i, n, each)
		}
	}
}

// TestPayloadRefusals: each error says what it is.
func TestPayloadRefusals(t *testing.T) {
	in := inbox{err: errors.New("not home")}
	seen := newCounter()
	t1, t2 := listen(t, Config{}), listen(t, Config{Receive: in.receive, Observer: seen})
	if err := t1.SendPayload(within(t), 2, "t", []byte("x")); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("before SetPeers: %v", err)
	}
	setPeers(t1, 1, []Peer{{Node: 2, Addr: t2.Addr().String()}, {Node: 3, Addr: "127.0.0.1:1"}})
	setPeers(t2, 2, []Peer{{Node: 1}})
	if err := t1.SendPayload(within(t), 3, "t", []byte("x")); !errors.Is(err, ErrLinkDown) {
		t.Errorf("without a link: %v", err)
	}
	eventually(t, "the link", func() bool { return statesOf(t1)[0].Up })
	for _, tc := range []struct {
		topic string
		size  int
		want  error
	}{
		{"", 1, errMessage},
		{string(make([]byte, maxTopic+1)), 1, errMessage},
		{"t", 0, errMessage},
		{"t", maxPayload + 1, errMessage},
		{"t", 1, ErrNotTaken}, // by Receive
	} {
		if err := t1.SendPayload(within(t), 2, tc.topic, make([]byte, tc.size)); !errors.Is(err, tc.want) {
			t.Errorf("topic of %d bytes, payload of %d: %v, want %v", len(tc.topic), tc.size, err, tc.want)
		}
	}
	if err := t2.SendPayload(within(t), 1, "t", []byte("x")); !errors.Is(err, ErrNotTaken) {
		t.Errorf("to one without Receive: %v", err)
	}
	if n := seen.count(CauseHandler); n != 1 {
		t.Errorf("%d errors of Receive counted, want 1", n)
	}
	if err := t1.Close(); err != nil {
		t.Error(err)
	}
	if err := t1.SendPayload(within(t), 2, "t", []byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A caller that gives up gives back what its payload held at both ends: many
// of them, each larger than half of what may be unfinished.
func TestPayloadAbandoned(t *testing.T) {
	var in inbox
	seen := newCounter()
	t1, t2 := listen(t, Config{}), listen(t, Config{Receive: in.receive, Observer: seen})
	join(t1, t2)
	waitUp(t, t1, t2)
	long := make([]byte, 40<<20)
	given := 0
	for i := range 30 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*200*time.Microsecond)
		switch err := t1.SendPayload(ctx, 2, "long", long); {
		case errors.Is(err, context.DeadlineExceeded):
			given++
		case err != nil:
			t.Error(err)
		}
		cancel()
	}
	if given == 0 {
		t.Error("no payload was abandoned")
	}
	if err := t1.SendPayload(within(t), 2, "long", []byte("last")); err != nil {
		t.Fatal(err)
	}
	got := in.all()
	if last := got[len(got)-1]; string(last.payload) != "last" {
		t.Errorf("the last payload has %d bytes", len(last.payload))
	}
	if s := statesOf(t1)[0]; s.Reconnects != 0 || seen.total() != 0 {
		t.Errorf("link = %+v, refused: %v", s, seen.refused)
	}
	l := t1.peers.Load().links[2]
	eventually(t, "nothing is left over", func() bool {
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		return len(l.p.session.payloads) == 0 && !l.p.session.wire.Owed()
	})
}

// Connections are cut at random bytes. A payload arrives whole or not at all,
// and its sender knows when it has to send it again.
func TestPayloadsAcrossCuts(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		var in inbox
		quick := Config{PingInterval: 60 * time.Millisecond, limits: limits{backoffMin: time.Millisecond, backoffMax: 2 * time.Millisecond, dialTimeout: 100 * time.Millisecond}}
		c2 := quick
		c2.Receive = in.receive
		t1, t2 := listen(t, quick), listen(t, c2)
		cut := newCutter(t, t2.Addr().String(), 400_000)
		setPeers(t1, 1, []Peer{{Node: 2, Addr: cut.addr()}})
		setPeers(t2, 2, []Peer{{Node: 1}})
		const n = 50
		again := 0
		for i := range n {
			payload := randomBytes(100_000, uint64(i))
			for {
				err := t1.SendPayload(within(t), 2, "report", payload)
				if err == nil {
					break
				}
				if !errors.Is(err, ErrLinkDown) {
					t.Fatal(err)
				}
				again++
				time.Sleep(100 * time.Microsecond) // pacing, not synchronisation
			}
		}
		if cut.cuts.Load() < 5 || again < 5 {
			t.Errorf("only %d cuts, and %d payloads sent again", cut.cuts.Load(), again)
		}
		got := in.all()
		last := -1
		for _, p := range got {
			switch {
			case last >= 0 && bytes.Equal(p.payload, randomBytes(100_000, uint64(last))):
			case bytes.Equal(p.payload, randomBytes(100_000, uint64(last+1))):
				last++
			default:
				t.Fatalf("after payload %d comes neither it nor the next", last)
			}
		}
		if last != n-1 {
			t.Errorf("the last payload is %d, want %d", last, n-1)
		}
		t.Logf("%d cuts, %d sent again, %d received", cut.cuts.Load(), again, len(got))
	})
}

// A payload whose link is dropped ends at once; the connection goes on, though its answer comes
// later, when nobody waits for it.
func TestPayloadOfADroppedLink(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	t1 := listen(t, Config{})
	t2 := listen(t, Config{Receive: func(kmutex.Node, string, []byte) error {
		close(began)
		<-goOn
		return nil
	}, Answer: func(context.Context, Caller, string, []byte) ([]byte, error) { return nil, nil }})
	join(t1, t2)
	waitUp(t, t1, t2)
	defer t1.Keep(to(t2))() // the connection outlives the link
	result := make(chan error, 1)
	go func() { result <- t1.SendPayload(within(t), 2, "t", []byte("x")) }()
	wait(t, "the payload", began)
	setPeers(t1, 1, nil)
	if err := <-result; !errors.Is(err, ErrLinkDown) {
		t.Errorf("got %v", err)
	}
	close(goOn)
	for range 3 {
		if _, err := t1.Call(within(t), to(t2), Question{Name: "c"}); err != nil {
			t.Error(err)
		}
	}
}
