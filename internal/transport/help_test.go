package transport

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/kmutex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait in these tests; none lasts that long unless
// something is broken.
const patience = 30 * time.Second

type deliverFunc func(kmutex.Node, string, kmutex.Message) error

func (f deliverFunc) Deliver(from kmutex.Node, pool string, m kmutex.Message) error {
	return f(from, pool, m)
}

// discard is a handler for tests in which no message matters.
var discard = deliverFunc(func(kmutex.Node, string, kmutex.Message) error { return nil })

// listen opens a transport on loopback, or on what the test has in its place, closed when the test ends. The first of a test is gw-1, the
// next gw-2.
func listen(tb testing.TB, c Config) *Transport {
	tb.Helper()
	c.Listen = "127.0.0.1:0"
	if c.Name == "" {
		n, _ := listening.LoadOrStore(tb, new(atomic.Uint64))
		c.Name = nameOf(kmutex.Node(n.(*atomic.Uint64).Add(1)))
	}
	if c.Handler == nil {
		c.Handler = discard
	}
	if n := memnet.Of(tb); n != nil && c.network == nil {
		c.network = n
	}
	c.PingInterval = cmp.Or(c.PingInterval, patience) // a busy machine stands for longer than the usual one
	t, err := Listen(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := t.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return t
}

// join makes the transports nodes 1, 2, ... of one view.
func join(ts ...*Transport) {
	var peers []Peer
	for i, t := range ts {
		peers = append(peers, Peer{Node: kmutex.Node(i + 1), Addr: t.Addr().String()})
	}
	for i, t := range ts {
		setPeers(t, kmutex.Node(i+1), peers)
	}
}

// listening counts the gateways of each test that have no other names.
var listening sync.Map

// setPeers is SetPeers for peers that are called after their nodes, those apart that have names.
func setPeers(t *Transport, self kmutex.Node, peers []Peer) []Unsent {
	peers = slices.Clone(peers)
	for i := range peers {
		peers[i].Name = cmp.Or(peers[i].Name, nameOf(peers[i].Node))
	}
	return t.SetPeers(self, peers)
}

func nameOf(n kmutex.Node) string { return fmt.Sprint("gw-", n) }

// eventually polls: what it waits for comes over real sockets.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// waitUp waits until all links of the transports are up.
func waitUp(tb testing.TB, ts ...*Transport) {
	tb.Helper()
	eventually(tb, "all links up", func() bool {
		return !slices.ContainsFunc(ts, func(t *Transport) bool {
			return slices.ContainsFunc(t.Links(), func(s LinkStatus) bool { return !s.Up })
		})
	})
}

func within(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tb.Cleanup(cancel)
	return ctx
}

// wait waits for a channel to be closed.
func wait(tb testing.TB, what string, done <-chan struct{}) {
	tb.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		tb.Fatalf("not within %v: %s", patience, what)
	}
}

func quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[int(q*float64(len(ds)-1))]
}

// counter is an Observer that counts.
type counter struct {
	mu      sync.Mutex
	refused map[Cause]int
	batches int
	batched int
}

var _ Observer = (*counter)(nil)

func newCounter() *counter {
	return &counter{refused: map[Cause]int{}}
}

func (c *counter) Refused(cause Cause) { c.mu.Lock(); c.refused[cause]++; c.mu.Unlock() }
func (c *counter) Batch(messages int) {
	c.mu.Lock()
	c.batches++
	c.batched += messages
	c.mu.Unlock()
}

func (c *counter) count(cause Cause) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[cause]
}

func (c *counter) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, n := range c.refused {
		sum += n
	}
	return sum
}

// pki is a certificate authority.
type pki struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newPKI(tb testing.TB) *pki {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test authority"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	return &pki{cert: sign(tb, template, template, &key.PublicKey, key), key: key}
}

func sign(tb testing.TB, template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) *x509.Certificate {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

// peer returns a configuration for a peer with a certificate of its own.
func (p *pki) peer(tb testing.TB, change ...func(*x509.Certificate)) *tls.Config {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "gw"},
		DNSNames:     []string{"gw-1", "gw-2", "gw-3", "gw-4", "gw-5"},
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, f := range change {
		f(template)
	}
	cert := sign(tb, template, p.cert, &key.PublicKey, p.key)
	roots := x509.NewCertPool()
	roots.AddCert(p.cert)
	return &tls.Config{
		RootCAs:      roots,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
	}
}

// plain dials a transport as a stranger would.
func plain(tb testing.TB, t *Transport) net.Conn {
	tb.Helper()
	conn, err := memnet.DialerOf(tb).DialContext(tb.Context(), "tcp", t.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// linkState is what tests look at besides a LinkStatus.
type linkState struct {
	LinkStatus
	Since                time.Time
	Queued               int
	Reconnects, Failures int
	Err                  string // why the link is down
}

var errNoView = errors.New("connected, but its view does not have both gateways (yet)")

// statesOf returns the state of every link, by node.
func statesOf(t *Transport) []linkState {
	var all []linkState
	for _, status := range t.Links() {
		l := t.peers.Load().links[status.Node]
		l.p.mu.Lock()
		s := linkState{
			LinkStatus: status, Since: l.since, Queued: l.wire.Queued(),
			Reconnects: max(l.connects, 1) - 1, Failures: l.p.failing.attempts,
		}
		err := cmp.Or(l.p.failing.err, l.lastErr)
		if session := l.p.session; session != nil && session.open && err == nil {
			if linked, _ := session.wire.Linked(); !linked {
				err = errNoView
			}
		}
		if err != nil && !l.up {
			s.Err = err.Error()
		}
		l.p.mu.Unlock()
		all = append(all, s)
	}
	return all
}

// downOf returns the peers whose links are down, and since when they are.
func downOf(t *Transport) map[kmutex.Node]time.Time {
	down := make(map[kmutex.Node]time.Time)
	for _, s := range statesOf(t) {
		if !s.Up {
			down[s.Node] = s.Since
		}
	}
	return down
}

// flush waits until every message that has been queued so far is acknowledged, or its peer is dropped.
func (t *Transport) flush(ctx context.Context) error {
	for _, l := range t.peers.Load().links {
		for queued := 1; queued > 0; {
			l.p.mu.Lock()
			if queued = l.wire.Queued(); queued > 0 && l.p.session != nil {
				l.p.session.wire.Challenge() // the answer comes with an acknowledgement
				l.p.session.wakeWriter()
			}
			l.p.mu.Unlock()
			select {
			case <-ctx.Done():
				return fmt.Errorf("peer %d has not acknowledged everything: %w", l.node, ctx.Err())
			case <-time.After(time.Millisecond):
			}
		}
	}
	return nil
}
