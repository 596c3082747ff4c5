package abuse

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/test/cluster"
)

// TestSlowClients: clients that send a byte a second, half of them of a header
// and half of a body, do not stop a hundred honest ones. What protects those is
// set here as docs/security.md says: the order fair, a limit per client, and
// least speed for bodies.
func TestSlowClients(t *testing.T) {
	const (
		k       = 20
		honest  = 100
		rounds  = 3
		sources = 10 // addresses that the slow ones share
	)
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	t.Parallel()
	slow := 1000
	if soak() {
		slow = 10_000
	}
	needFiles(t, slow+2000)
	u := &turnstile{hold: 20 * time.Millisecond}
	judge, _, url := cluster.NewJudge(t, u)
	c := cluster.Start(t, cluster.Options{
		Gateways: 1, K: 1, Upstream: url, Listen: fmt.Sprintf("header_timeout: 3s, max_connections: %d", slow+1000),
		Pools: []cluster.Pool{{
			Name: "guarded", K: k, Upstream: url,
			Settings: "queue: {order: fair, per_client: {limit: 5}}, hold: {idle: 3s, min_upload: 100}",
		}},
	})
	g := c.Gateways[0]
	before, err := g.RSS()
	if err != nil {
		t.Skip("needs /proc to tell the gateway's memory: ", err)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var dawdlers sync.WaitGroup
	var open, ended atomic.Int64
	for i := range slow {
		from := fmt.Sprintf("127.0.2.%d", 1+i%sources)
		head := "POST /guarded/ HTTP/1.1\r\nHost: kgate.test\r\nContent-Length: 100000\r\n\r\n"
		if i/sources%2 == 0 {
			head = "GET /guarded/ HTTP/1.1\r\n"
		}
		dawdlers.Go(func() { dawdle(ctx, from, g.HTTP, head, &open, &ended) })
	}
	awaitCtx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := cluster.Await(awaitCtx, func() error {
		if open.Load() < int64(slow)*9/10 || ended.Load() < int64(slow)/10 {
			return fmt.Errorf("%d slow connections are open, %d have been ended", open.Load(), ended.Load())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	for i := range honest {
		client := from(t, fmt.Sprintf("127.0.3.%d", 1+i))
		all.Go(func() {
			for range rounds {
				began := time.Now()
				status, err := ask(t.Context(), client, g.URL()+"guarded/")
				if err != nil || status != http.StatusOK {
					t.Errorf("honest client %d: %d %v", i, status, err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	during, err := g.RSS()
	must(t, err)
	still := open.Load()
	stop()
	dawdlers.Wait()
	if t.Failed() {
		return
	}
	slices.Sort(took)
	each := float64(during-before) / float64(slow) / 1024
	t.Logf("%d slow connections open at the end, %d ended by the gateway meanwhile", still, ended.Load())
	t.Logf("%d honest clients had all of their %d answers, after %v at the median and %v at most", honest, len(took),
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	t.Logf("memory %.1f MiB before, %.1f MiB with them: %.1f KiB for each slow one", float64(before)/(1<<20), float64(during)/(1<<20), each)
	if longest := took[len(took)-1]; longest > 30*time.Second { // a minute if nothing protected them
		t.Errorf("an honest client had its answer after %v", longest)
	}
	if each > 100 {
		t.Errorf("%.1f KiB for each slow client", each)
	}
	if _, most, _ := judge.Counts(); most > k {
		t.Errorf("most in flight %d, k is %d", most, k)
	}
	wholeAgain(t, g, "guarded", k)
}

// dawdle sends a head at once and then a byte a second, over one connection after
// the other.
func dawdle(ctx context.Context, from, to, head string, open, ended *atomic.Int64) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if conn, err := d.DialContext(ctx, "tcp", to); err == nil {
			open.Add(1)
			next := head
			for {
				if _, err := conn.Write([]byte(next)); err != nil {
					ended.Add(1)
					break
				}
				next = "a"
				select {
				case <-tick.C:
					continue
				case <-ctx.Done():
				}
				break
			}
			_ = conn.Close()
			open.Add(-1)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// wholeAgain waits until a pool has nobody in flight and all its tokens free.
func wholeAgain(t *testing.T, g *cluster.Gateway, pool string, k int) {
	t.Helper()
	err := g.AwaitPool(t.Context(), pool, func(p admin.Pool) bool {
		return p.Waiting == 0 && p.InFlight == 0 && p.FreeTokensHere == k
	})
	if err != nil {
		t.Error(err)
	}
}
