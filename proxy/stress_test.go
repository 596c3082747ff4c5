package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// TestStress lets clients come and go at random: plain requests, uploads,
// upgrades, slow readers, refused and malformed requests, each broken off at a
// random moment or not. Afterwards every slot is free, nothing is counted in
// flight, and (TestMain) no goroutine is left.
func TestStress(t *testing.T) {
	const (
		clients = 200
		k       = 8
	)
	g := newGateway(t, k, chaoticUpstream(t), func(c *Config) { c.Pools[0].QueueTimeout = 200 * time.Millisecond })
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range uint64(2) {
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed+round, uint64(i)))
				for range 4 {
					chaoticClient(g.addr, rng)
				}
			})
		}
		wg.Wait()
		g.sem.await(0, 0)
	}
	g.fill(k)
	g.sem.mu.Lock()
	if g.sem.maxHeld != k {
		t.Errorf("%d slots were held at most, want %d: the test did not load the pool", g.sem.maxHeld, k)
	}
	g.sem.mu.Unlock()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := g.server.Shutdown(ctx); err != nil {
		t.Errorf("not all requests ended: %v", err)
	}
	for _, u := range g.handler.current.Load().balancers["p"].backends {
		if u.inFlight != 0 {
			t.Errorf("%d counted in flight at the upstream", u.inFlight)
		}
	}
	if n := g.server.Connections(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	outcomes := map[admission.Outcome]int{}
	for len(g.records.done) > 0 {
		outcomes[(<-g.records.done).Outcome]++
	}
	t.Logf("outcomes %v", outcomes)
	if o := missing(outcomes); len(o) > 0 {
		t.Errorf("no request with outcome %v: the test is too tame", o)
	}
}

// fill takes all slots of a pool, and has a request end in each of the ways that
// chance may not have brought: how many clients are there at once depends on the
// machine.
func (g *gateway) fill(k int) {
	g.t.Helper()
	const get = "GET /%s HTTP/1.1\r\nHost: h\r\n%s\r\n"
	var held []*rawConn
	for range k {
		c := g.dial()
		c.send(fmt.Sprintf(get, "held", ""))
		held = append(held, c)
	}
	g.sem.await(k, 0)
	late := g.dial()
	late.send(fmt.Sprintf(get, "", "Prefer: wait=0\r\n"))
	late.response()
	gone := g.dial()
	gone.send(fmt.Sprintf(get, "", ""))
	g.sem.await(k, 1)
	_ = gone.Close()
	g.sem.await(k, 0)
	for _, c := range held {
		_ = c.Close()
	}
	g.sem.await(0, 0)
	broken, served := g.dial(), g.dial()
	broken.send(fmt.Sprintf(get, "broken", ""))
	broken.response()
	served.send(fmt.Sprintf(get, "served", ""))
	served.response()
	g.sem.await(0, 0)
}

// missing lists the outcomes that every run must have.
func missing(outcomes map[admission.Outcome]int) []admission.Outcome {
	return slices.DeleteFunc([]admission.Outcome{admission.OutcomeAdmitted, admission.OutcomeClientGone, admission.OutcomeUpstreamError, admission.Timeout.Outcome()},
		func(o admission.Outcome) bool { return outcomes[o] > 0 })
}

// chaoticUpstream answers, streams, aborts, upgrades or stays silent.
func chaoticUpstream(t *testing.T) http.Handler {
	echo := echoUpgrade(t)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/held":
			<-r.Context().Done()
			return
		case "/broken":
			panic(http.ErrAbortHandler)
		case "/served":
			return
		}
		switch rand.IntN(8) {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case 2:
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		case 3:
			select {
			case <-r.Context().Done():
			case <-time.After(50 * time.Millisecond):
			}
		default:
			if r.Header.Get("Upgrade") != "" {
				echo(w, r)
				return
			}
			n, _ := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprintf(w, "%d bytes", n)
		}
	})
}

// chaoticClient makes one request over a connection of its own and gives up,
// mostly, at some moment in the next 60 ms.
func chaoticClient(addr string, rng *rand.Rand) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Duration(rng.IntN(60)) * time.Millisecond))
	if rng.IntN(3) == 0 {
		_ = conn.SetDeadline(time.Now().Add(400 * time.Millisecond)) // longer than it waits in line
	}
	if tcp, ok := conn.(*net.TCPConn); ok && rng.IntN(4) == 0 {
		_ = tcp.SetLinger(0) // close with a reset
	}
	requests := []string{
		"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nPrefer: wait=0\r\nConnection: close\r\n\r\n",
		upgradeRequest,
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n" + strings.Repeat("y", 100000),
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n" + strings.Repeat("y", rng.IntN(100000)),
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nbroken",
		"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
		"nonsense nonsense nonsense\r\n\r\n",
	}
	if _, err := io.WriteString(conn, requests[rng.IntN(len(requests))]); err != nil {
		return
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return
	}
	defer res.Body.Close()
	buf := make([]byte, 1+rng.IntN(4096))
	for { // until the deadline
		if _, err := res.Body.Read(buf); err != nil {
			return
		}
	}
}
