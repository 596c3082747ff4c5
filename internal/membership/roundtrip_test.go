package membership

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
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
// more, as a handshake of TCP and one of TLS do.
func TestRoundTrips(t *testing.T) {
	virtual(t, func(t *testing.T) {
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
		if trouble := staysAsItIs(gateways, 10*leaseTime); trouble != "" {
			t.Error(trouble)
		}
	})
}

// Where round trips are as long as docs/guarantees.md bears, what needs a new connection with TLS
// ends in time.
func TestTimeoutsHaveRoom(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 3 * time.Second, 4 * time.Second, time.Minute} {
		trip := min(lease/10, 400*time.Millisecond)
		for name, c := range map[string]struct {
			timeout time.Duration
			trips   int
		}{
			"a dial":                   {probeTimeout(lease, trip), 3},
			"a dial before a question": {reachTimeout(lease), 3},
			"a call":                   {callTimeout(lease), 4},
		} {
			if need := time.Duration(c.trips) * trip; c.timeout <= need {
				t.Errorf("lease %v: %s has %v and needs %v", lease, name, c.timeout, need)
			}
		}
	}
}

// staysAsItIs watches for that long that each gateway keeps its lease, and that there is no
// election and no new view. It returns what is not so, at once.
func staysAsItIs(gateways []*gateway, during time.Duration) (trouble string) {
	view := gateways[0].View().Number
	terms := make(map[string]uint64)
	nodes := make(map[string]kmutex.Node)
	for _, g := range gateways {
		terms[g.name], nodes[g.name] = g.stats().Term, g.Standing().Node
	}
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, g := range gateways {
			now := time.Now()
			if s := g.Standing(); s.Node != nodes[g.name] || !s.Valid(now) {
				return fmt.Sprintf("%s stands as %+v, before as %d", g.name, s, nodes[g.name])
			}
		}
	}
	for _, g := range gateways {
		if now := g.stats().Term; now != terms[g.name] || g.View().Number != view {
			return fmt.Sprintf("%s: term %d after term %d, view %d after view %d", g.name, now, terms[g.name], g.View().Number, view)
		}
	}
	return ""
}
