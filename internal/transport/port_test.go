package transport

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// healthy runs messages over a link from node 1 to node 3, which is the
// transport under attack, while f runs, and wants them undisturbed.
func healthy(t *testing.T, c Config, f func(victim *Transport, seen *counter)) {
	t.Helper()
	seen := newCounter()
	var mu sync.Mutex
	var last uint64
	c.Observer = seen
	c.Handler = deliverFunc(func(from kmutex.Node, _ string, m kmutex.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if from == 1 {
			if m.Number != last+1 {
				t.Errorf("message %d after %d", m.Number, last)
			}
			last = m.Number
		}
		return nil
	})
	c.Name = "gw-3"
	friend, victim := listen(t, Config{TLS: c.TLS}), listen(t, c)
	setPeers(friend, 1, []Peer{{Node: 3, Addr: victim.Addr().String()}})
	// 2 is played by the test; 4 is never there.
	setPeers(victim, 3, []Peer{{Node: 1}, {Node: 2}, {Node: 4, Addr: "127.0.0.1:1"}})
	waitUp(t, friend)

	stop, sent := make(chan struct{}), uint64(0)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Microsecond)
		defer tick.Stop()
		for {
			sent++
			if err := friend.Send(3, "p", numbered(int(sent))); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	f(victim, seen)
	close(stop)
	wg.Wait()
	if err := friend.flush(within(t)); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if last != sent || sent == 0 {
		t.Errorf("%d messages of the healthy link delivered, %d sent", last, sent)
	}
	if s := statesOf(friend)[0]; s.Reconnects != 0 {
		t.Errorf("the healthy link was broken: %+v", s)
	}
}

// closed wants the other end to have closed conn, and returns what it said
// before.
func closed(t *testing.T, conn net.Conn) []byte {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(conn)
	if err != nil && !isReset(err) {
		t.Errorf("not closed: %v", err)
	}
	return b
}

// TestGarbage: what is no peer is refused, counted, and told no more than it
// should know.
func TestGarbage(t *testing.T) {
	healthy(t, Config{}, func(victim *Transport, seen *counter) {
		for _, tc := range []struct {
			name   string
			say    []byte
			cause  Cause
			answer []byte
		}{
			{"http", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), CauseMagic, nil},
			{"zeros", make([]byte, 1000), CauseMagic, nil},
			{"tls", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), CauseTLS, nil},
			{"foreign version", []byte("kgat\x04\x01\x00\x00"), CauseVersion, answerOf(statusVersion)},
			{"unknown kind", []byte("kgat\x08\x09\x00\x00"), CauseKind, answerOf(statusKind)},
			{"unused byte", []byte("kgat\x08\x01\x00\x01"), CauseKind, answerOf(statusKind)},
			{"stream of before", []byte("kgat\x08\x03\x00\x00"), CauseKind, answerOf(statusKind)},
			{"hello from nobody", opening(wire.Hello{Boot: "b"}), CauseProtocol, answerOf(statusHello)},
			{"hello to another", opening(wire.Hello{Name: "gw-1", Boot: "b", To: "gw-2"}), CauseNode, answerOf(statusName)},
			{"hello from ourselves", opening(wire.Hello{Name: "gw-3", Boot: "b", To: "gw-3"}), CauseNode, answerOf(statusName)},
		} {
			before := seen.count(tc.cause)
			conn := plain(t, victim)
			if _, err := conn.Write(tc.say); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			if got := closed(t, conn); !bytes.Equal(got, tc.answer) {
				t.Errorf("%s: answered %q, want %q", tc.name, got, tc.answer)
			}
			eventually(t, tc.name+" is counted", func() bool { return seen.count(tc.cause) == before+1 })
		}
		before := seen.count(CauseIncomplete)
		conn := plain(t, victim)
		_, _ = conn.Write([]byte("kga"))
		_ = conn.Close()
		eventually(t, "an incomplete preamble is counted", func() bool { return seen.count(CauseIncomplete) == before+1 })
	})
}

// opening is how a connection between processes begins.
func opening(h wire.Hello) []byte { return h.Append(appendPreamble(nil)) }

// rawNumber counts the connections that rawLink opens.
var rawNumber atomic.Uint64

// rawHello is that of gw-2, played by hand.
func rawHello() []byte {
	return opening(wire.Hello{Name: "gw-2", Boot: "raw", To: "gw-3", Number: rawNumber.Add(1)})
}

// rawFrame returns a frame of a type that consists of numbers.
func rawFrame(kind byte, numbers ...uint64) []byte {
	b := []byte{0, 0, kind}
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	binary.BigEndian.PutUint16(b, uint16(len(b)-2))
	return b
}

// The types of frames that are played by hand.
const (
	rawMessage = 1
	rawPing    = 8
	rawPong    = 9
	rawOpen    = 10
	rawAck     = 11
)

// rawText returns the frame of a message.
func rawText(t *testing.T, n int) []byte {
	m := numbered(n)
	b, err := appendMessage([]byte{0, 0, rawMessage}, "downloads", &m)
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint16(b, uint16(len(b)-2))
	return b
}

// rawLink opens a link as node 2, by hand.
func rawLink(t *testing.T, victim *Transport) net.Conn { return rawLinkAfter(t, victim, 0) }

// rawLinkAfter does so after so many messages.
func rawLinkAfter(t *testing.T, victim *Transport, sent uint64) net.Conn {
	t.Helper()
	conn := plain(t, victim)
	if _, err := conn.Write(rawHello()); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if err := readAnswer(conn); err != nil {
		t.Fatal(err)
	}
	if h, err := readHello(conn); err != nil || h.Name != "gw-3" || h.To != "gw-2" {
		t.Fatalf("hello %+v, %v", h, err)
	}
	if _, err := conn.Write(rawFrame(rawOpen, 2, 3, 0, sent)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestBadFrames: a peer that sends nonsense loses its connection, and nothing
// else.
func TestBadFrames(t *testing.T) {
	healthy(t, Config{}, func(victim *Transport, seen *counter) {
		for _, tc := range []struct {
			name  string
			say   []byte
			cause Cause
		}{
			{"oversized", []byte("\xff\xff\xff\xff"), CauseOversized},
			{"just oversized", []byte{0x80, 0x01, 1}, CauseOversized},
			{"empty frame", []byte{0, 0}, CauseFrame},
			{"unknown type", []byte{0, 2, 0x1f, 1}, CauseFrame},
			{"acknowledged what was not sent", rawFrame(rawAck, 1), CauseProtocol},
			{"answered a ping that was not asked", rawFrame(rawPong, 99), CauseProtocol},
			{"garbage", []byte("\x00\x08\x01garbage"), CauseFrame},
		} {
			before := seen.count(tc.cause)
			conn := rawLink(t, victim)
			_, _ = conn.Write(tc.say) // may be closed already
			closed(t, conn)
			eventually(t, tc.name+" is counted", func() bool { return seen.count(tc.cause) == before+1 })
		}
		// An unfinished frame, then nothing.
		conn := rawLink(t, victim)
		_, _ = conn.Write([]byte{0x70, 0, 1, 1})
		_ = conn.Close()
		// A newer connection takes the place of one that there is.
		one, two := rawLink(t, victim), rawLink(t, victim)
		closed(t, one)
		_, _ = two.Write(rawFrame(rawPing, 5))
		want := rawFrame(rawPong, 5)
		if got := readUntil(t, two, want); !bytes.Contains(got, want) {
			t.Errorf("the newer connection was told %x, want %x", got, want)
		}
	})
}

// readUntil reads until want has come.
func readUntil(t *testing.T, conn net.Conn, want []byte) []byte {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	var got []byte
	for b := make([]byte, 100); !bytes.Contains(got, want); {
		n, err := conn.Read(b)
		got = append(got, b[:n]...)
		if err != nil {
			t.Error(err)
			return got
		}
	}
	return got
}

// A message that comes over a new connection waits until those that came over the one before it are
// delivered.
func TestNewConnectionWaits(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var last uint64
	victim := listen(t, Config{Name: "gw-3", Handler: deliverFunc(func(_ kmutex.Node, _ string, m kmutex.Message) error {
		if last++; m.Number != last {
			t.Errorf("message %d, want %d", m.Number, last)
		}
		if last == 1 {
			close(began)
			<-goOn
		}
		return nil
	})})
	setPeers(victim, 3, []Peer{{Node: 2}})
	one := rawLink(t, victim)
	if _, err := one.Write(rawText(t, 1)); err != nil {
		t.Fatal(err)
	}
	wait(t, "the first message", began)
	two := rawLinkAfter(t, victim, 1)
	closed(t, one)
	if _, err := two.Write(append(rawText(t, 2), rawFrame(rawPing, 7)...)); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if got, pong := readUntil(t, two, rawFrame(rawAck, 2)), rawFrame(rawPong, 7); !bytes.Contains(got, pong) {
		readUntil(t, two, pong)
	}
}

// TestSilentPeer: a connection on which nothing comes back is given up, sooner if something is owed.
func TestSilentPeer(t *testing.T) {
	const ping = 6 * time.Second
	for owed, least := range map[int]time.Duration{0: ping * 3 / 2, 1: ping} {
		memnet.Test(t, func(t *testing.T) {
			victim := listen(t, Config{Name: "gw-3", PingInterval: ping})
			setPeers(victim, 3, []Peer{{Node: 2}})
			sendAll(t, victim, 2, owed)
			began := time.Now()
			closed(t, rawLink(t, victim))
			if took := time.Since(began); took < least || took > least+ping/6 {
				t.Errorf("%d messages owed: closed after %v", owed, took)
			}
			eventually(t, "the reason is shown", func() bool { return strings.Contains(statesOf(victim)[0].Err, wire.ErrSilent.Error()) })
		})
	}
}

// TestSlowPreamble: those who take too long are closed.
func TestSlowPreamble(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		const limit = 50 * time.Millisecond
		healthy(t, Config{limits: limits{handshakeTimeout: limit}}, func(victim *Transport, seen *counter) {
			began := time.Now()
			silent, trickle := plain(t, victim), plain(t, victim)
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := range magic {
					time.Sleep(limit / 5)
					_, _ = trickle.Write([]byte{magic[i]})
				}
			})
			closed(t, silent)
			closed(t, trickle)
			if took := time.Since(began); took != limit {
				t.Errorf("closed after %v", took)
			}
			wg.Wait()
			eventually(t, "both are counted", func() bool { return seen.count(CauseSlow) == 2 })
		})
	})
}

// TestTooManyHalfOpen: silent connections do not keep peers out.
func TestTooManyHalfOpen(t *testing.T) {
	healthy(t, Config{limits: limits{maxHalfOpen: 4}}, func(victim *Transport, seen *counter) {
		var conns []net.Conn
		for range 12 {
			conns = append(conns, plain(t, victim))
		}
		rawLink(t, victim) // succeeds
		for _, conn := range conns[:8] {
			closed(t, conn) // the oldest
		}
		eventually(t, "they are counted", func() bool { return seen.count(CauseHalfOpen) >= 8 })
		// The rest ends with the transport.
	})
}

func TestTLS(t *testing.T) {
	ours, theirs := newPKI(t), newPKI(t)
	mixed := theirs.peer(t)
	mixed.RootCAs = ours.peer(t).RootCAs // trusts us, but is of theirs
	expired := ours.peer(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	nobody := ours.peer(t)
	nobody.Certificates = nil
	healthy(t, Config{TLS: ours.peer(t)}, func(victim *Transport, seen *counter) {
		for name, tc := range map[string]struct {
			config *tls.Config
			cause  Cause
		}{
			"another authority":      {mixed, CauseCertificate},
			"both another authority": {theirs.peer(t), CauseHandshake}, // the client is the first to notice
			"expired":                {expired, CauseCertificate},
			"good for clients only":  {ours.peer(t, onlyFor(x509.ExtKeyUsageClientAuth)), CauseCertificate},
			"no certificate":         {nobody, CauseHandshake},
			"too old": {&tls.Config{
				Certificates: ours.peer(t).Certificates, InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
			}, CauseHandshake},
		} {
			before := seen.count(tc.cause)
			config := newTLSPair(tc.config).client
			if tc.config.MaxVersion != 0 {
				config = tc.config
			}
			conn := tls.Client(plain(t, victim), config)
			_ = conn.SetDeadline(time.Now().Add(patience))
			err := conn.Handshake()
			if err == nil { // TLS 1.3: the server's verdict comes with the first read
				_, err = conn.Read(make([]byte, 1))
			}
			var timeout net.Error
			if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
				t.Errorf("%s: error %v", name, err)
			}
			_ = conn.Close()
			eventually(t, name+" is counted", func() bool { return seen.count(tc.cause) == before+1 })
		}
		conn := plain(t, victim)
		_, _ = conn.Write(rawHello())
		closed(t, conn)
		eventually(t, "plaintext is counted", func() bool { return seen.count(CausePlaintext) == 1 })
	})
}

// The dialling end checks the other one's certificate as well.
func TestTLSServerIsChecked(t *testing.T) {
	ours, theirs := newPKI(t), newPKI(t)
	roots := ours.peer(t).RootCAs
	clientOnly := ours.peer(t, onlyFor(x509.ExtKeyUsageClientAuth))
	for name, certs := range map[string][]tls.Certificate{
		"another authority": theirs.peer(t).Certificates,
		"no server's":       clientOnly.Certificates,
	} {
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certs})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if conn, err := l.Accept(); err == nil {
				_ = conn.(*tls.Conn).Handshake()
				_ = conn.Close()
			}
		})
		tr := listen(t, Config{TLS: &tls.Config{RootCAs: roots, Certificates: ours.peer(t).Certificates}})
		_, err = tr.Meet(within(t), l.Addr().String())
		if cert := new(tls.CertificateVerificationError); !errors.As(err, &cert) && !errors.As(err, new(x509.UnknownAuthorityError)) && !errors.As(err, new(x509.CertificateInvalidError)) {
			t.Errorf("%s: %v", name, err)
		}
		_ = l.Close()
		wg.Wait()
	}
}

// from is a connection from an address, for halfOpen.
type from struct {
	net.Conn
	host string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.host), Port: 1} }

// TestHalfOpenByAddress: who opens many connections closes its own oldest, not those of others that
// have waited longer; where all have as many, the oldest goes.
func TestHalfOpenByAddress(t *testing.T) {
	h := newHalfOpen(3)
	add := func(host string) (evicted string) {
		_, conn := h.add(from{host: host})
		if conn == nil {
			return ""
		}
		return conn.(from).host
	}
	var got []string
	for _, host := range []string{"10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9", "10.0.0.9", "10.0.0.2", "10.0.0.3"} {
		got = append(got, add(host))
	}
	if want := []string{"", "", "", "10.0.0.9", "10.0.0.9", "10.0.0.9", "10.0.0.1"}; !slices.Equal(got, want) {
		t.Errorf("closed %q, want %q", got, want)
	}
}

// A far peer whose beginning takes most of a second gets in beside 600 silent connections a second
// from another address.
func TestFarPeerBesideAFlood(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		victim := listen(t, Config{Name: "gw-3"})
		far, err := memnet.Of(t).DialFrom(t.Context(), net.IPv4(127, 0, 0, 2), victim.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		for range 90 { // its round trips
			for range 6 {
				plain(t, victim)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := far.Write(opening(wire.Hello{Name: "gw-1", Boot: "far", Addr: "127.0.0.2:1", To: "gw-3", Number: 1})); err != nil {
			t.Error(err)
		}
		readUntil(t, far, answerOf(statusOK))
	})
}
