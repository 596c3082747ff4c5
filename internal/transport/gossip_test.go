package transport

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/internal/transport/wire"
)

// A second process of a name, at another address, does not take the connection of the first: it
// is refused. So is one that says the same address, as the first one, started again, does: until the
// first is gone.
func TestTwin(t *testing.T) {
	victim := listen(t, Config{Name: "gw-3"})
	friend := listen(t, Config{Name: "gw-1"})
	release := friend.Keep(To{Name: "gw-3", Addr: victim.Addr().String()})
	defer release()
	eventually(t, "the first is there", func() bool {
		at, ok := victim.Proved("gw-1")
		return ok && at == friend.Addr().String()
	})
	say := func(addr string) error {
		conn := plain(t, victim)
		if _, err := conn.Write(opening(wire.Hello{Name: "gw-1", Boot: "twin", Addr: addr, To: "gw-3", Number: 1})); err != nil {
			t.Fatal(err)
		}
		var b [preambleSize]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			t.Fatal(err)
		}
		return decodeAnswer(b[:])
	}
	if err := say("192.0.2.1:7080"); !errors.Is(err, errRefused) {
		t.Errorf("a twin: %v", err)
	}
	if at, ok := victim.Proved("gw-1"); !ok || at != friend.Addr().String() {
		t.Errorf("the first is gone: %s", at)
	}
	if err := say(friend.Addr().String()); !errors.Is(err, errRefused) {
		t.Errorf("one that says the same address, while the first lives: %v", err)
	}
	release()
	eventually(t, "the first, started again, is taken", func() bool { return say(friend.Addr().String()) == nil })
}

// Two processes of one name that both dial without pause do not take turns: the first keeps the
// connection, whether the other one says another address or the same, and whether it is known
// or not.
func TestTwinsDoNotTakeTurns(t *testing.T) {
	for _, viewed := range []bool{false, true} {
		for _, same := range []bool{false, true} {
			t.Run(fmt.Sprintf("in the view %v, same address %v", viewed, same), func(t *testing.T) {
				memnet.Test(t, func(t *testing.T) {
					limits := limits{backoffMin: time.Millisecond, backoffMax: 2 * time.Millisecond}
					victim := listen(t, Config{Name: "gw-3"})
					first := listen(t, Config{Name: "gw-1"})
					twin := Config{Name: "gw-1", limits: limits}
					if same {
						twin.Advertise = first.Addr().String()
					}
					second := listen(t, twin)
					peers := []Peer{{Node: 1, Addr: first.Addr().String()}, {Node: 3, Addr: victim.Addr().String()}}
					if viewed {
						setPeers(victim, 3, peers)
						setPeers(first, 1, peers)
						waitUp(t, first)
					}
					to := To{Name: "gw-3", Addr: victim.Addr().String()}
					defer first.Keep(to)()
					eventually(t, "the first is there", func() bool { _, ok := victim.Proved("gw-1"); return ok })
					was, _, _ := victim.processes["gw-1"].current()
					defer second.Keep(to)()
					eventually(t, "the second has tried often", func() bool {
						p := second.use("gw-3")
						defer second.leave(p)
						p.mu.Lock()
						defer p.mu.Unlock()
						return p.failing.attempts >= 30
					})
					if is, _, _ := victim.processes["gw-1"].current(); is != was {
						t.Error("there is another connection")
					}
				})
			})
		}
	}
}

// A datagram to a gateway without a connection is dropped, and begins one.
func TestDatagramDials(t *testing.T) {
	got := make(chan string, 64)
	victim := listen(t, Config{Name: "gw-2", Datagram: func(_ wire.Channel, from Caller, data []byte) { got <- from.Name + string(data) }})
	friend := listen(t, Config{Name: "gw-1"})
	to := To{Name: "gw-2", Addr: victim.Addr().String()}
	if err := friend.SendDatagram(to, wire.Gossip, []byte("x")); !errors.Is(err, ErrLinkDown) {
		t.Errorf("the first: %v", err)
	}
	eventually(t, "a later one is taken", func() bool { return friend.SendDatagram(to, wire.Gossip, []byte("y")) == nil })
	if text := <-got; text != "gw-1y" {
		t.Errorf("got %q", text)
	}
	if err := friend.SendDatagram(To{Name: "gw-1", Addr: "127.0.0.1:1"}, wire.Gossip, []byte("x")); err == nil {
		t.Error("sent to itself")
	}
}
