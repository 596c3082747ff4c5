package cluster

import (
	"net"
	"sync"
	"testing"
)

// NewTCPJudge has serve serve each connection of an upstream, whose address it returns,
// until the test ends, and counts the connections that are open. One has ended when serve
// returns: then it is closed.
func NewTCPJudge(tb testing.TB, serve func(*net.TCPConn)) (j *Judge, addr string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	j = &Judge{visits: make(map[*visit]struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			v := &visit{conn: conn}
			j.enter(v, Use{})
			wg.Go(func() {
				serve(conn.(*net.TCPConn))
				j.leave(v)
				_ = conn.Close()
			})
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		for _, conn := range j.conns("") {
			_ = conn.Close()
		}
		wg.Wait()
	})
	return j, l.Addr().String()
}
