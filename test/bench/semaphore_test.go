package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	weighted "golang.org/x/sync/semaphore"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/test/cluster"
)

// semaphore is one of one slot, as its i-th client sees it.
type semaphore struct {
	name    string
	acquire func(i int) (release func())
}

const (
	semaphoreRounds = 5
	semaphoreCrowd  = 24 // clients
)

// BenchmarkSemaphores compares what a slot costs that is free, one that has to come from another
// client, process or machine each time, and one that a crowd waits for. k is 1, as etcd has a mutex.
// All servers and nodes are on this machine, so a network adds its round trips: none for kgate's free
// slot, one or two for the others.
func BenchmarkSemaphores(b *testing.B) {
	t, filled := newTable(fmt.Sprintf("A slot without a request, k = 1, %d rounds in turn: medians", semaphoreRounds),
		fmt.Sprintf("\tfree: us\tfrom another each time: us\t%d wait: slots/s", semaphoreCrowd))
	if filled {
		return
	}
	local := weighted.NewWeighted(1)
	all := []*semaphore{{"x/sync/semaphore, one process", func(int) func() {
		_ = local.Acquire(b.Context(), 1) // fails with the context, and then nobody reads the figures
		return func() { local.Release(1) }
	}}, kgateSemaphore(b, 1), kgateSemaphore(b, 3)}
	cluster.Need(b, "redis-server", "redis-server")
	all = append(all, redisSemaphore(b))
	if _, err := exec.LookPath("etcd"); err == nil {
		all = append(all, etcdMutex(b))
	} else {
		t.note("no etcd: install etcd-server for its row")
	}
	free, turns, crowds := figures{}, figures{}, figures{}
	for range semaphoreRounds {
		for _, s := range all {
			free.add(s, s.one(func(int) int { return 0 }))
			turns.add(s, s.one(func(n int) int { return n % 3 }))
			crowds.add(s, s.crowd())
		}
	}
	for _, s := range all {
		t.row("%s\t%.1f\t%.1f\t%.0f", s.name, median(free[s]), median(turns[s]), median(crowds[s]))
	}
}

// figures of the rounds, by semaphore.
type figures map[*semaphore][]float64

func (f figures) add(s *semaphore, v float64) { f[s] = append(f[s], v) }

// one returns how many microseconds it takes to get and give back a slot that is free, for one client
// after the other.
func (s *semaphore) one(who func(n int) int) float64 {
	const lasts = 300 * time.Millisecond
	s.acquire(who(0))()
	began, n := time.Now(), 0
	for time.Since(began) < lasts {
		n++
		s.acquire(who(n))()
	}
	return time.Since(began).Seconds() * 1e6 / float64(n)
}

// crowd returns how many slots a second clients get that ask again at once.
func (s *semaphore) crowd() float64 {
	const lasts = time.Second
	var all sync.WaitGroup
	var n atomic.Int64
	began := time.Now()
	for i := range semaphoreCrowd {
		all.Go(func() {
			for time.Since(began) < lasts {
				s.acquire(i)()
				n.Add(1)
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(began).Seconds()
}

// kgateSemaphore is that of nodes in this process.
func kgateSemaphore(b *testing.B, nodes int) *semaphore {
	b.Helper()
	var all []*kgate.Node
	var join []string
	for i := range nodes {
		n, err := kgate.Start(b.Context(), kgate.Config{
			Name: fmt.Sprint("node-", i+1), Pools: []kgate.Pool{{Name: "p", K: 1}},
			Peers: kgate.Peers{Listen: "127.0.0.1:0", Join: join, Expect: nodes},
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = n.Close() })
		all, join = append(all, n), append(join, n.PeerAddr())
	}
	for _, n := range all {
		if err := n.Ready(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	name := "kgate, one node"
	if nodes > 1 {
		name = fmt.Sprintf("kgate, %d nodes in one process", nodes)
	}
	return &semaphore{name, func(i int) func() {
		slot, err := all[i%nodes].Acquire(b.Context(), "p")
		if err != nil {
			b.Error(err)
		}
		return slot.Release
	}}
}

// redisSemaphore is a list with a token: BLPOP takes it, RPUSH gives it back. A client that dies
// takes the token along.
func redisSemaphore(b *testing.B) *semaphore {
	b.Helper()
	addr := cluster.ReservePort(b)
	host, port, _ := net.SplitHostPort(addr)
	cluster.StartProcess(b, "redis-server", "--bind", host, "--port", port, "--save", "", "--dir", b.TempDir())
	conns := make([]*redisConn, semaphoreCrowd)
	for i := range conns {
		conns[i] = dialRedis(b, addr)
	}
	conns[0].call(b, "RPUSH", "slots", "token")
	return &semaphore{"Redis, BLPOP and RPUSH", func(i int) func() {
		conns[i].call(b, "BLPOP", "slots", "0")
		return func() { conns[i].call(b, "RPUSH", "slots", "token") }
	}}
}

// redisConn is a connection to Redis.
type redisConn struct {
	net.Conn
	from *bufio.Reader
}

func dialRedis(b *testing.B, addr string) *redisConn {
	b.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			b.Cleanup(func() { _ = c.Close() })
			return &redisConn{c, bufio.NewReader(c)}
		}
		if time.Now().After(deadline) {
			b.Fatal(err)
		}
	}
}

// call sends a command, and reads its answer: a number, or a list of texts.
func (c *redisConn) call(b *testing.B, words ...string) {
	command := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := c.Write(command); err != nil {
		b.Error(err)
		return
	}
	line, err := c.from.ReadString('\n')
	if err != nil || line[0] == '-' {
		b.Error(line, err)
		return
	}
	if line[0] == '*' {
		texts, _ := strconv.Atoi(line[1 : len(line)-2])
		for range 2 * texts { // its length, and the text
			if _, err := c.from.ReadString('\n'); err != nil {
				b.Error(err)
			}
		}
	}
}

// etcdMutex is the mutex of etcd's own client, on one server. Where it survives the loss of a server
// there are three, and each change waits for two of them.
func etcdMutex(b *testing.B) *semaphore {
	b.Helper()
	clients, peers := "http://"+cluster.ReservePort(b), "http://"+cluster.ReservePort(b)
	cluster.StartProcess(b, "etcd", "--data-dir", b.TempDir(), "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--log-level", "error")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{clients}, DialTimeout: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	all := make([]*concurrency.Mutex, semaphoreCrowd)
	for i := range all {
		session, err := concurrency.NewSession(client)
		if err != nil {
			b.Fatal(err)
		}
		all[i] = concurrency.NewMutex(session, "/slots")
	}
	return &semaphore{"etcd, its client's mutex, one server", func(i int) func() {
		if err := all[i].Lock(context.Background()); err != nil {
			b.Error(err)
		}
		return func() {
			if err := all[i].Unlock(context.Background()); err != nil {
				b.Error(err)
			}
		}
	}}
}
