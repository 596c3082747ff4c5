package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/internal/transport/wire"
)

// background runs a load until its stop is called, which returns the result. It ends in
// order: an upstream hears late of what is broken off, and would count that beside the next.
func background(t *testing.T, c *Cluster, clients int) (stop func() *demo.Result) {
	t.Helper()
	end := make(chan struct{})
	cfg := demo.LoadConfig{Duration: time.Hour, Stop: end}
	for _, g := range c.Gateways {
		cfg.Targets = append(cfg.Targets, demo.Target{Name: g.Name, URL: g.URL(), Clients: clients / len(c.Gateways)})
	}
	var r *demo.Result
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, _ = demo.Run(t.Context(), cfg) // fails only if the test has ended
	}()
	stop = sync.OnceValue(func() *demo.Result {
		close(end)
		<-done
		return r
	})
	t.Cleanup(func() { stop() })
	return stop
}

// say sends bytes to an address and closes the connection when the other end
// has, or after a while.
func say(t *testing.T, addr string, data []byte) (answer []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer conn.Close()
	_, _ = conn.Write(data) // it may be refused before all is sent
	_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	answer, _ = io.ReadAll(io.LimitReader(conn, 64<<10))
	return answer
}

// opening is what a connection begins with, in that version of the protocol.
func opening(version byte) []byte { return append([]byte("kgat"), version, 1, 0, 0) }

// hello opens a connection as a gateway of that name does.
func hello(from, to string) []byte {
	return wire.Hello{Name: from, Boot: rand.Text(), Addr: "192.0.2.1:1", To: to, Number: 1}.Append(opening(wire.Version))
}

func garbage(rng *mathrand.ChaCha8, n int) []byte {
	b := make([]byte, n)
	_, _ = rng.Read(b) // never fails
	return b
}

// badPeers sends a gateway's peer port what no peer sends, some of it in the name of another gateway.
func badPeers(t *testing.T, g, other *Gateway, rng *mathrand.ChaCha8) {
	t.Helper()
	for range 10 {
		say(t, g.Peer, append([]byte{'x'}, garbage(rng, 1+int(rng.Uint64()%8000))...))
		say(t, g.Peer, opening(wire.Version)[:5])                            // truncated preamble, then silence
		say(t, g.Peer, opening(wire.Version+1))                              // foreign version
		say(t, g.Peer, append(opening(wire.Version)[:5], "\xee\x00\x00"...)) // unknown kind of connection
		say(t, g.Peer, hello("x-1", "nobody"))                               // for another gateway
		say(t, g.Peer, hello(g.Name, g.Name))                                // with this gateway's name
		say(t, g.Peer, hello(other.Name, g.Name))                            // with that of one that is connected
		say(t, g.Peer, append(opening(wire.Version), "\x00\x02\x00\x00"...)) // a hello without a name
		say(t, g.Peer, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))          // plaintext HTTP
		say(t, g.Peer, []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc"))       // TLS
	}
}

// badFrames opens connections as only those can who reach a peer port without TLS, and sends what is no
// frame, or none of a stranger.
func badFrames(t *testing.T, g *Gateway) {
	t.Helper()
	for i, frame := range []string{
		"\xff\xff\xff\xff",                         // oversized
		"\x00\x05\x03\x01",                         // truncated
		"\x00\x02\x1f\x01",                         // an unknown type
		"\x00\x04\x05\x02\x00\x00",                 // an answer that nobody waits for
		"\x00\x0b\x01\x04none\x63\x01\x00\x00\x00", // a message without a link
	} {
		say(t, g.Peer, append(hello(fmt.Sprint("x-", i), g.Name), frame...))
	}
}

// halfOpen opens connections that say nothing.
func halfOpen(t *testing.T, addr string, n int) (closeAll func()) {
	t.Helper()
	var conns []net.Conn
	for range n {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			break
		}
		conns = append(conns, conn)
	}
	return func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
}

// TestBadPeers has everybody misbehave on the peer ports of three that serve a load, and looks whether anything stops or any slot is lost.
func TestBadPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	const k = 6
	judge, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, 50*time.Millisecond) }))
	c := Start(t, Options{K: k, Upstream: url})
	c.Causes("refused")
	seed := [32]byte{1: byte(time.Now().UnixNano())}
	t.Logf("seed %d", seed[1])
	quietLines := logLines(c)

	for _, g := range c.Gateways {
		badFrames(t, g)
	}
	stop := background(t, c, 30)
	var wg sync.WaitGroup
	for i, g := range c.Gateways {
		wg.Go(func() {
			rng := mathrand.NewChaCha8([32]byte{seed[1], byte(i)})
			closeAll := halfOpen(t, g.Peer, 300)
			began := time.Now()
			badPeers(t, g, c.Gateways[(i+1)%len(c.Gateways)], rng)
			Span(t, max(0, 6*time.Second-time.Since(began))) // who says nothing is told off after five
			closeAll()
		})
	}
	wg.Wait()
	load := stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.AwaitWhole(ctx); err != nil {
		t.Error(err)
	}

	_, most, total := judge.Counts()
	t.Logf("meanwhile %d requests reached the upstream, most in flight %d (k %d), failed %v", total, most, k, load.Overall.Failed)
	if load.Overall.Errors > 0 || most > k {
		t.Errorf("failed %v, most in flight %d", load.Overall.Failed, most)
	}
	for i, g := range c.Gateways {
		checkRefusals(t, g)
		lines, _ := g.Log.Lines()
		t.Logf("%s: %d lines logged", g.Name, len(lines)-quietLines[i])
		if n := len(lines) - quietLines[i]; n > 30 {
			t.Errorf("%s has logged %d lines", g.Name, n)
		}
	}
	freshAtRoot(t, c)
}

func logLines(c *Cluster) []int {
	var n []int
	for _, g := range c.Gateways {
		lines, _ := g.Log.Lines()
		n = append(n, len(lines))
	}
	return n
}

// checkRefusals holds what is counted and logged about refusals.
func checkRefusals(t *testing.T, g *Gateway) {
	t.Helper()
	m, err := g.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, cause := range []string{
		"foreign_magic", "foreign_version", "unknown_kind", "slow_preamble",
		"too_many_half_open", "tls_on_plaintext_port", "protocol", "oversized_frame", "bad_frame",
	} {
		n := m.Sum("kgate_peer_refused_total", fmt.Sprintf("cause=%q", cause))
		t.Logf("%s: refused %v for the cause %s", g.Name, n, cause)
		if n == 0 {
			t.Errorf("%s has refused nothing for the cause %s", g.Name, cause)
		}
	}
	logged := make(map[string]int)
	for _, r := range g.Log.Records("refused") {
		logged[r.Text("cause")]++
	}
	for cause, n := range logged {
		if n > 1 {
			t.Errorf("%s has logged the cause %s %d times within a minute", g.Name, cause, n)
		}
	}
	if len(logged) == 0 {
		t.Errorf("%s has logged no refusal", g.Name)
	}
}

// freshAtRoot has every gateway serve one request for /.
func freshAtRoot(t *testing.T, c *Cluster) {
	t.Helper()
	for _, g := range c.Gateways {
		res, err := g.client.Get(g.URL())
		if err != nil {
			t.Error(err)
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", g.Name, res.Status)
		}
	}
}
