package transport

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/memnet"
)

// A link that carries short packets only is down at both ends for as long as that lasts,
// whoever dials, and though connections come and pings are answered. When long packets
// pass again all messages arrive.
func TestLongPacketsLost(t *testing.T) {
	for way := range 2 {
		for _, idle := range []bool{false, true} {
			t.Run(fmt.Sprintf("way %d, idle %v", way, idle), func(t *testing.T) {
				memnet.Test(t, func(t *testing.T) { testLongPacketsLost(t, way, idle) })
			})
		}
	}
}

func testLongPacketsLost(t *testing.T, way int, idle bool) {
	at1, at2 := newInOrder(400), newInOrder(400)
	const ping = 40 * time.Millisecond
	t1, t2 := listen(t, Config{PingInterval: ping, Handler: at1}), listen(t, Config{PingInterval: ping, Handler: at2})
	path := newCutter(t, t2.Addr().String(), 0)
	setPeers(t1, 1, []Peer{{Node: 2, Addr: path.addr()}})
	setPeers(t2, 2, []Peer{{Node: 1}})
	waitUp(t, t1, t2)

	path.holes[way].Store(true)
	if idle { // an idle link finds it out by itself
		eventually(t, "the links down", func() bool { return len(downOf(t1)) == 1 && len(downOf(t2)) == 1 })
	}
	for i := 1; i <= 400; i++ {
		if err := errors.Join(t1.Send(2, "downloads", numbered(i)), t2.Send(1, "downloads", numbered(i))); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the links down", func() bool { return len(downOf(t1)) == 1 && len(downOf(t2)) == 1 })
	since1, since2, dials := downOf(t1)[2], downOf(t2)[1], path.accepted.Load()
	eventually(t, "further connections", func() bool { return path.accepted.Load() >= dials+3 })
	if !downOf(t1)[2].Equal(since1) || !downOf(t2)[1].Equal(since2) {
		t.Errorf("down since %v and %v, before since %v and %v", downOf(t1), downOf(t2), since1, since2)
	}
	if err := statesOf(t1)[0].Err; err == "" {
		t.Error("no reason why the link is down")
	}

	path.holes[way].Store(false)
	waitUp(t, t1, t2)
	wait(t, "all at 1", at1.done)
	wait(t, "all at 2", at2.done)
	at1.check(t, "at 1")
	at2.check(t, "at 2")
}
