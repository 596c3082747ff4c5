package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
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

// link opens a link as the gateways do, but with that version.
func link(version byte, from, to uint64) []byte {
	b := append([]byte("kgat"), version, 1, 0, 0)
	b = binary.BigEndian.AppendUint64(b, from)
	b = binary.BigEndian.AppendUint64(b, to)
	return binary.BigEndian.AppendUint64(b, 0)
}

func garbage(rng *mathrand.ChaCha8, n int) []byte {
	b := make([]byte, n)
	_, _ = rng.Read(b) // never fails
	return b
}

// badPeers sends a gateway's peer port what no peer sends. from and to are nodes
// of the view, so that the gateway takes the sender for one of them.
func badPeers(t *testing.T, g *Gateway, rng *mathrand.ChaCha8, from, to uint64) {
	t.Helper()
	for range 10 {
		say(t, g.Peer, append([]byte{'x'}, garbage(rng, 1+int(rng.Uint64()%8000))...))
		say(t, g.Peer, []byte("kgat\x05"))                             // truncated preamble, then silence
		say(t, g.Peer, link(9, from, to))                              // foreign version
		say(t, g.Peer, []byte("kgat\x05\xee\x00\x00"))                 // unknown kind of stream
		say(t, g.Peer, link(4, 1<<40, to))                             // nobody's node
		say(t, g.Peer, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))    // plaintext HTTP
		say(t, g.Peer, []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc")) // TLS
		say(t, g.Peer, []byte("kgat\x05\x02\x00\x00"+"raft? no: noise"))
		say(t, g.Peer, []byte("kgat\x05\x04\x00\x00"+"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nnoise"))
	}
}

// badFrames opens a link in a peer's name, as only those can who reach a peer
// port without TLS, and sends what is no frame. The link must not have carried
// messages yet: afterwards a stranger does not know how many.
func badFrames(t *testing.T, g *Gateway, from, to uint64) {
	t.Helper()
	for _, frame := range []string{
		"\xff\xff\xff\xff",                         // oversized
		"\x00\x00\x00\x05\x41\x01",                 // truncated
		"\x00\x00\x00\x02\x91\x01",                 // a frame of a foreign version
		"\x00\x00\x00\x02\x4f\x01",                 // an unknown type
		"\x00\x00\x00\x09\x41\x01\x04none\x63\x01", // an unknown pool and kind
	} {
		say(t, g.Peer, append(link(4, from, to), frame...))
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

	nodes := make([]uint64, len(c.Gateways))
	for i, g := range c.Gateways {
		s, err := g.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = s.Gateway.Node
	}
	lowest := slices.Min(nodes)
	for i, g := range c.Gateways {
		if nodes[i] != lowest { // the lower node dials
			badFrames(t, g, lowest, nodes[i])
		}
	}
	stop := background(t, c, 30)
	var wg sync.WaitGroup
	for i, g := range c.Gateways {
		wg.Go(func() {
			rng := mathrand.NewChaCha8([32]byte{seed[1], byte(i)})
			closeAll := halfOpen(t, g.Peer, 300)
			began := time.Now()
			badPeers(t, g, rng, lowest+slices.Max(nodes)-nodes[i], nodes[i])
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
	if load.Overall.Errors() > 0 || most > k {
		t.Errorf("failed %v, most in flight %d", load.Overall.Failed, most)
	}
	for i, g := range c.Gateways {
		checkRefusals(t, g)
		lines, _ := g.Log.Lines()
		t.Logf("%s: %d lines logged", g.Name, len(lines)-quietLines[i])
		if n := len(lines) - quietLines[i]; n > 100 {
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
		"too_many_half_open", "tls_on_plaintext_port",
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
