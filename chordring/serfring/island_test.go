package serfring

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// freeAddrs returns loopback addresses that were free a moment ago.
func freeAddrs(t *testing.T, n int) []string {
	t.Helper()
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// Agents that each know the next one only find all, in whatever order they
// start: one that is found first must not end the search.
func TestChain(t *testing.T) {
	const n = 5
	for name, order := range map[string][n]int{
		"in order":           {0, 1, 2, 3, 4},
		"backwards":          {4, 3, 2, 1, 0},
		"the middle is last": {0, 1, 3, 4, 2},
		"pairs":              {1, 0, 4, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			addrs := freeAddrs(t, n)
			var want []string
			for i := range n {
				want = append(want, fmt.Sprintf("gw-%d/1/alive", i))
			}
			var agents []gateway
			for _, i := range order {
				var join []string
				if i+1 < n {
					join = []string{addrs[i+1]}
				}
				c := base(fmt.Sprintf("gw-%d", i), "1", join...)
				c.Bind = addrs[i]
				agents = append(agents, start(t, c))
			}
			for _, a := range agents {
				sees(t, a, want...)
			}
		})
	}
}

// Two islands that exist already become one when an address of a join list
// answers at last, and also when it has answered before for somebody else.
func TestIslandsMeet(t *testing.T) {
	addrs := freeAddrs(t, 4)
	at := func(name string, i int, join ...string) gateway {
		c := base(name, "1", join...)
		c.Bind = addrs[i]
		return start(t, c)
	}
	a := at("a", 0, addrs[1], addrs[2])
	b := at("b", 1)
	sees(t, a, "a/1/alive", "b/1/alive")
	c := at("c", 2, addrs[3])
	d := at("d", 3)
	for _, agent := range []gateway{a, b, c, d} {
		sees(t, agent, "a/1/alive", "b/1/alive", "c/1/alive", "d/1/alive")
	}
}

// Once all have answered, the join list is asked rarely, but without end.
func TestJoinListIsAskedOn(t *testing.T) {
	a := start(t, base("a", "1"))
	// Not the address that a says it has, as a name or a balancer would be.
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	var asked atomic.Int64
	go func() {
		for {
			conn, err := front.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			far, err := net.Dial("tcp", a.Addr())
			if err != nil { // a has ended, with the test; else b cannot join
				_ = conn.Close()
				continue
			}
			go pipe(conn, far)
			go pipe(far, conn)
		}
	}()
	c := base("b", "1", front.Addr().String())
	c.RetryInterval = 10 * time.Millisecond
	b := start(t, c)
	sees(t, b, "a/1/alive", "b/1/alive")
	before := asked.Load()
	until(t, "the list is asked twice more", func() bool { return asked.Load() >= before+2 })
}

func pipe(from, to net.Conn) {
	defer to.Close()
	b := make([]byte, 1<<12)
	for {
		n, err := from.Read(b)
		if _, e := to.Write(b[:n]); err != nil || e != nil {
			return
		}
	}
}
