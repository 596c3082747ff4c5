package cluster

import (
	"net"
	"testing"
	"time"
)

// TestGoneBeforeItCame: a request whose gateway was killed before the upstream began with it has
// ended, too.
func TestGoneBeforeItCame(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gateway, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = gateway.Close()
	for deadline := time.Now().Add(patience); !closedByPeer(conn)[0]; {
		if time.Now().After(deadline) {
			t.Fatal("the connection is still open")
		}
		time.Sleep(time.Millisecond)
	}
	j := &Judge{visits: make(map[*visit]struct{})}
	j.Keep()
	v := &visit{conn: conn}
	j.enter(v, Use{})
	j.leave(v)
	a := j.Since(time.Time{})
	if len(a) != 1 || a[0].Use.Ended.IsZero() || a[0].InFlight != 0 {
		t.Errorf("the judge says %+v", a)
	}
}
