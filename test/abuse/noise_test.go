package abuse

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/test/cluster"
)

// port is one of a gateway's, and beginnings that are right there: noise behind
// them gets further than noise alone.
type port struct {
	name, network string
	addr          func(*cluster.Gateway) string
	beginnings    []string
	// forwarded are beginnings of requests that reach the upstream and are broken
	// off there, at the cost of one of the gateway's own ports for a minute: not
	// more than one in a hundred.
	forwarded []string
}

const preamble = "kgat" + string(rune(wire.Version)) + "\x01\x00\x00"

var ports = []port{
	{"http", "tcp", func(g *cluster.Gateway) string { return g.HTTP }, httpBeginnings, []string{
		"POST / HTTP/1.1\r\nHost: kgate.test\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: kgate.test\r\nContent-Length: 100\r\n\r\n",
	}},
	{"https", "tcp", func(g *cluster.Gateway) string { return g.HTTPS }, []string{
		"\x16\x03\x01", "\x16\x03\x01\x00\x80\x01\x00\x00\x7c\x03\x03", "GET / HTTP/1.1\r\n\r\n",
	}, nil},
	{"admin", "tcp", func(g *cluster.Gateway) string { return g.Admin }, append([]string{
		"POST /.kgate/tickets HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 200\r\n\r\n{\"pool\":",
		"PUT /api/v1/pools/pool HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 200\r\n\r\n{\"k\":",
		"GET /.kgate/tickets/",
	}, httpBeginnings...), nil},
	{"peer", "tcp", func(g *cluster.Gateway) string { return g.Peer }, []string{
		"kgat", preamble, preamble + "\x00", preamble + "\x00\x20\x04gw-1", "kgat\x05\x01\x00\x00",
	}, nil},
}

var httpBeginnings = []string{
	"GET / HTTP/1.1\r\nHost: kgate.test\r\n", "GET /", "GET / HTTP/1.1\r\nHost: kgate.test\r\nKgate-Ticket: ",
	"GET / HTTP/1.1\r\nHost: kgate.test\r\nPrefer: ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "POST /.kgate/tickets HTTP/1.1\r\nHost: kgate.test\r\nContent-Length: 100\r\n\r\n",
}

// noise returns one byte string.
func (p port) noise(r *rand.Rand) []byte {
	b := make([]byte, 0, 600)
	switch n := r.IntN(100); {
	case n == 0 && p.forwarded != nil:
		b = append(b, p.forwarded[r.IntN(len(p.forwarded))]...)
	case n < 75:
		b = append(b, p.beginnings[r.IntN(len(p.beginnings))]...)
	}
	for range 1 + r.IntN(1<<r.IntN(10)) {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

// TestNoise throws random bytes at each port of a gateway that serves an honest
// client meanwhile: it goes on, loses no slot, and does not grow.
func TestNoise(t *testing.T) {
	const (
		k       = 4
		workers = 32
	)
	t.Parallel()
	each := 10_000 / len(ports)
	if soak() {
		each = 1_000_000
	}
	if n, err := strconv.Atoi(os.Getenv("KGATE_NOISE")); err == nil {
		each = n
	}
	u := &turnstile{}
	judge, _, url := cluster.NewJudge(t, u)
	c := cluster.Start(t, cluster.Options{
		Gateways: 1, K: k, Upstream: url, ClientTLS: cluster.NewTLSFiles(t),
	})
	g := c.Gateways[0]
	answered, stop := background(t, g)
	for _, p := range ports { // what it needs once is there
		throw(t, g, p, each/10, workers, 1)
	}
	before := weigh(t, g)
	for i, p := range ports {
		began, was := time.Now(), answered.Load()
		throw(t, g, p, each, workers, uint64(2+i))
		now := weigh(t, g)
		t.Logf("%s: %d byte strings in %v, %d honest answers meanwhile; memory %.1f MiB, %.0f goroutines", p.name, each,
			time.Since(began).Round(time.Millisecond), answered.Load()-was, float64(now.memory)/(1<<20), now.goroutines)
	}
	stop()
	wholeAgain(t, g, cluster.PoolName, k)
	if _, most, _ := judge.Counts(); most > k {
		t.Errorf("most in flight %d, k is %d", most, k)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience) // a header may take ten seconds
	defer cancel()
	if err := cluster.Await(ctx, func() error {
		if now := weigh(t, g); now.goroutines > before.goroutines+20 {
			return fmt.Errorf("%.0f goroutines, %.0f before", now.goroutines, before.goroutines)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	after := weigh(t, g)
	t.Logf("memory %.1f MiB after a tenth of it, %.1f MiB at the end", float64(before.memory)/(1<<20), float64(after.memory)/(1<<20))
	if grown := after.memory - before.memory; grown > 64<<20 { // the heap may come up to its floor meanwhile
		t.Errorf("memory has grown by %.1f MiB", float64(grown)/(1<<20))
	}
}

// background asks without a pause until it is stopped. Each answer must be good.
func background(t *testing.T, g *cluster.Gateway) (answered *atomic.Int64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	answered = new(atomic.Int64)
	client := from(t, "127.0.0.9")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				status, err := ask(ctx, client, g.URL())
				if ctx.Err() == nil && (err != nil || status != http.StatusOK) {
					t.Errorf("an honest client: %d %v", status, err)
					return
				}
				answered.Add(1)
			}
		})
	}
	return answered, func() { cancel(); wg.Wait() }
}

// throw sends n byte strings to a port, each over a connection of its own.
func throw(t *testing.T, g *cluster.Gateway, p port, n, workers int, seed uint64) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range workers {
		r := rand.New(rand.NewPCG(seed, uint64(w)))
		d := net.Dialer{Timeout: patience}
		if p.network == "tcp" { // ports of one address would run out
			d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 4, byte(1+w))}
		}
		wg.Go(func() {
			for range n / workers {
				if err := p.send(&d, p.addr(g), p.noise(r)); err != nil {
					t.Errorf("%s: %v", p.name, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// send sends a byte string, and waits a little for the gateway to hang up.
func (p port) send(d *net.Dialer, addr string, noise []byte) error {
	conn, err := d.Dial(p.network, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, _ = conn.Write(noise) // it may have hung up in the middle
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = io.Copy(io.Discard, conn)
		_ = tcp.SetLinger(0)
	}
	return nil
}

// weight is what a gateway has in use.
type weight struct {
	memory     int64
	goroutines float64
}

func weigh(t *testing.T, g *cluster.Gateway) weight {
	t.Helper()
	m, err := g.Metrics(t.Context())
	must(t, err)
	memory, err := g.RSS()
	must(t, err)
	return weight{memory, m.Sum("go_goroutines")}
}
