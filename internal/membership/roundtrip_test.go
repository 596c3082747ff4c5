package membership

import (
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// slowConn delivers what is written to it after a delay, in order.
type slowConn struct {
	net.Conn
	delay time.Duration
	mu    sync.Mutex
	queue chan slowWrite
	once  sync.Once
	done  chan struct{}
}

type slowWrite struct {
	at   time.Time
	data []byte
}

func newSlowConn(conn net.Conn, delay time.Duration) *slowConn {
	s := &slowConn{Conn: conn, delay: delay, queue: make(chan slowWrite, 1<<16), done: make(chan struct{})}
	go s.pump()
	return s
}

func (s *slowConn) pump() {
	for {
		select {
		case w := <-s.queue:
			select {
			case <-time.After(time.Until(w.at)):
			case <-s.done:
				return
			}
			if _, err := s.Conn.Write(w.data); err != nil {
				return
			}
		case <-s.done:
			return
		}
	}
}

func (s *slowConn) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.done:
		return 0, net.ErrClosed
	case s.queue <- slowWrite{time.Now().Add(s.delay), append([]byte(nil), data...)}:
		return len(data), nil
	}
}

func (s *slowConn) Close() error {
	s.once.Do(func() { close(s.done) })
	return s.Conn.Close()
}

// slowListener delays what goes back on the connections that it accepts.
type slowListener struct {
	net.Listener
	delay time.Duration
}

func (l slowListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newSlowConn(conn, l.delay), nil
}

// With a round trip of a tenth of the lease everything is quiet: nobody is elected
// twice, suspected, or without a lease. Each new connection costs two round trips
// more, as a handshake of TCP and one of TLS do. For ten minutes with KGATE_SOAK.
func TestRoundTrips(t *testing.T) {
	if !judgesTimes {
		t.Skip("is about times: without the race detector")
	}
	t.Parallel()
	const leaseTime = 3 * time.Second
	n := network{delay: leaseTime / 20}
	var gateways []*gateway
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		conf := config{expect: 5, lease: leaseTime}
		if len(gateways) > 0 {
			conf.join = []string{gateways[0].gossip}
		}
		gateways = append(gateways, n.start(t, name, conf))
	}
	began := time.Now()
	settle(t, gateways)
	t.Logf("whole after %v", time.Since(began))
	until(t, "five voters", func() bool { names, _ := leaderOf(t, gateways).Voting(); return len(names) == 5 })
	time.Sleep(leaseTime)
	before := gateways[0].View().Number
	terms := make(map[string]uint64)
	nodes := make(map[string]Standing)
	for _, g := range gateways {
		terms[g.name], nodes[g.name] = g.stats().Term, g.stands()
	}
	quiet := 5 * leaseTime
	if os.Getenv("KGATE_SOAK") != "" {
		quiet = 10 * time.Minute
	}
	// What heartbeats and renewals have beside such round trips is a tenth of the lease and more.
	began = time.Now()
	fail := func(format string, args ...any) {
		t.Helper()
		if stood := stalls.Worst(began, leaseTime); stood > leaseTime/10 {
			t.Skipf("the machine stood for %v within a lease: not judged is "+format, append([]any{stood}, args...)...)
		}
		t.Fatalf(format, args...)
	}
	for end := time.Now().Add(quiet); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, g := range gateways {
			now := time.Now()
			if s := g.Standing(); s.Node != nodes[g.name].Node || !s.Valid(now) {
				fail("%s stands as %+v, before as %+v", g.name, s, nodes[g.name])
			}
		}
	}
	for _, g := range gateways {
		if now := g.stats().Term; now != terms[g.name] || g.View().Number != before {
			fail("%s: term %d after term %d, view %d after view %d", g.name, now, terms[g.name], g.View().Number, before)
		}
	}
}
