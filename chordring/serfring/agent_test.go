package serfring

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// A probe of memberlist that has no answer yet outlives its Shutdown by the rest of the
// probe's interval.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probe"))
}

// lines collects what an agent logs.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.MultiWriter(l), nil))
}

// setup is the configuration of an agent, and of the peer port that it gets.
type setup struct {
	Config
	Bind string
	TLS  *tls.Config
}

func base(name, boot string, join ...string) setup {
	return setup{Bind: "127.0.0.1:0", Config: Config{
		Name: name, Boot: boot, Version: "1.0", Expect: 3, Join: join,
		RetryInterval: 50 * time.Millisecond, LeaveDelay: 20 * time.Millisecond,
	}}
}

type deaf struct{}

func (deaf) Deliver(kmutex.Node, string, kmutex.Message) error { return nil }

// listen gives the agent a peer port, and returns what closes it.
func (s *setup) listen(t testing.TB) {
	t.Helper()
	c := NewCarrier()
	links, err := transport.Listen(transport.Config{
		Name: s.Name, Listen: s.Bind, Handler: deaf{}, TLS: s.TLS, Datagram: c.Datagram,
		Answer: func(ctx context.Context, from transport.Caller, _ string, question []byte) ([]byte, error) {
			return c.Answer(ctx, from, question)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Carrier, s.Links = c, links
	t.Cleanup(func() {
		if err := links.Close(); err != nil {
			t.Error(err)
		}
	})
}

// gateway is an agent with its peer port. It ends like a process: all at once.
type gateway struct{ *Agent }

func (g gateway) Addr() string { return g.config.Links.Addr().String() }

func (g gateway) Close() error { return errors.Join(g.Agent.Close(), g.config.Links.Close()) }

func start(t testing.TB, s setup) gateway {
	t.Helper()
	if s.Links == nil {
		s.listen(t)
	}
	a, err := Start(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return gateway{a}
}

// sees waits, on the agent's own channel, until it sees exactly the members
// described as name/boot/status.
func sees(t testing.TB, a gateway, want ...string) {
	t.Helper()
	timeout := time.After(15 * time.Second)
	for {
		var have []string
		for _, m := range a.Members() {
			have = append(have, fmt.Sprintf("%s/%s/%s", m.Name, m.Boot, m.Status))
		}
		if fmt.Sprint(have) == fmt.Sprint(want) {
			return
		}
		select {
		case <-a.Changed():
		case <-timeout:
			t.Fatalf("sees %v, want %v", have, want)
		}
	}
}

// until waits for what no channel tells of.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15s: %s", what)
		}
	}
}

func TestMembersCarryTheirTags(t *testing.T) {
	a := start(t, base("a", "1"))
	b := start(t, base("b", "1", a.Addr()))
	sees(t, a, "a/1/alive", "b/1/alive")
	sees(t, b, "a/1/alive", "b/1/alive")
	want := Member{Name: "b", PeerAddr: b.Addr(), Boot: "1", Expect: 3, Status: StatusAlive}
	if got := a.Members()[1]; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestLeaveAndFailure(t *testing.T) {
	a := start(t, base("a", "1"))
	b := start(t, base("b", "1", a.Addr()))
	c := start(t, base("c", "1", a.Addr()))
	sees(t, a, "a/1/alive", "b/1/alive", "c/1/alive")
	sees(t, b, "a/1/alive", "b/1/alive", "c/1/alive") // who knows nobody bids nobody farewell
	if err := errors.Join(b.Leave(), b.Close()); err != nil {
		t.Error(err)
	}
	sees(t, a, "a/1/alive", "b/1/left", "c/1/alive")
	began := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	sees(t, a, "a/1/alive", "b/1/left", "c/1/failed")
	t.Logf("a loss is noticed after %v", time.Since(began))
}

// Serf's own farewell can be lost; the tag says it, too, and a gateway that returns has none.
func TestFarewellByTag(t *testing.T) {
	a := start(t, base("a", "1"))
	b := start(t, base("b", "1", a.Addr()))
	sees(t, a, "a/1/alive", "b/1/alive")
	sees(t, b, "a/1/alive", "b/1/alive")
	if err := errors.Join(b.SetBoot("2"), b.serf.SetTags(farewell(b.serf.LocalMember().Tags)), b.Close()); err != nil {
		t.Error(err)
	}
	sees(t, a, "a/1/alive", "b/2/left")
	b = start(t, base("b", "3", a.Addr()))
	sees(t, a, "a/1/alive", "b/3/alive")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	sees(t, a, "a/1/alive", "b/3/failed")
}

// A restart at the same address is seen by its boot id, though nobody noticed
// that the gateway was gone; one at another address is seen once the old one
// is missed.
func TestRestart(t *testing.T) {
	a := start(t, base("a", "1"))
	b := start(t, base("b", "1", a.Addr()))
	sees(t, a, "a/1/alive", "b/1/alive")
	again := base("b", "2", a.Addr())
	again.Bind = b.Addr()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b = start(t, again)
	sees(t, a, "a/1/alive", "b/2/alive")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	moved := start(t, base("b", "3", a.Addr()))
	sees(t, moved, "a/1/alive", "b/3/alive")
	sees(t, a, "a/1/alive", "b/3/alive")
}

// The one that has a name keeps it, sees nothing of the newcomer, and the
// newcomer is told what to do. When the name is free it gets it.
func TestNameInUse(t *testing.T) {
	var his lines
	a := start(t, base("a", "1"))
	b := start(t, base("b", "1", a.Addr()))
	sees(t, b, "a/1/alive", "b/1/alive")
	second := base("a", "2", a.Addr(), b.Addr())
	second.Logger = his.logger()
	twin := start(t, second)
	until(t, "it is refused", func() bool { return errors.Is(twin.Problem(), errName) })
	if n := len(twin.Members()); n != 1 {
		t.Errorf("the newcomer sees %d members, want itself", n)
	}
	sees(t, a, "a/1/alive", "b/1/alive")
	sees(t, b, "a/1/alive", "b/1/alive")
	// Once a minute, and with the remedy.
	if n := his.count("give every gateway a name of its own"); n != 1 {
		t.Errorf("the newcomer says it %d times", n)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	sees(t, twin, "a/2/alive", "b/1/alive")
	sees(t, b, "a/2/alive", "b/1/alive")
	until(t, "no problem any more", func() bool { return twin.Problem() == nil })
}

// Without the key of the peer port, or with another, nobody is heard.
func TestKeys(t *testing.T) {
	key := func() clusterkey.Ring {
		ring, err := clusterkey.Parse([]byte(clusterkey.New()))
		if err != nil {
			t.Fatal(err)
		}
		return ring
	}
	one, other := key(), key()
	for _, tt := range []struct {
		name          string
		theirs, yours clusterkey.Ring
		want          error // nil: it joins
	}{
		{"same", one, one, nil},
		{"another", one, other, errKey},
		{"none here", one, clusterkey.Ring{}, errBroken},
		{"none there", clusterkey.Ring{}, one, errBroken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log lines
			first := base("a", "1")
			first.TLS, _ = tt.theirs.TLS("a") // none without a key
			a := start(t, first)
			second := base("b", "1", a.Addr())
			second.TLS, _ = tt.yours.TLS("b")
			second.Logger = log.logger()
			b := start(t, second)
			if tt.want == nil {
				sees(t, a, "a/1/alive", "b/1/alive")
				return
			}
			until(t, "it says so", func() bool {
				return log.count("msg=\"not joined\"") > 0
			})
			if !errors.Is(b.Problem(), tt.want) {
				t.Errorf("problem %v, want %v", b.Problem(), tt.want)
			}
			sees(t, a, "a/1/alive")
		})
	}
}

// A join list may have the port for clients, which has no key at all.
func TestClientsPort(t *testing.T) {
	clients := httptest.NewServer(http.NotFoundHandler())
	defer clients.Close()
	ring, err := clusterkey.Parse([]byte(clusterkey.New()))
	if err != nil {
		t.Fatal(err)
	}
	c := base("b", "1", clients.Listener.Addr().String(), "127.0.0.1:1")
	c.TLS, _ = ring.TLS("b")
	b := start(t, c)
	until(t, "it says so", func() bool { return errors.Is(b.Problem(), errPort) })
	if text := b.Problem().Error(); errors.Is(b.Problem(), errKey) || !strings.Contains(text, "; no answer: ") || strings.Contains(text, "\n") {
		t.Error(text)
	}
}

func TestNobodyAnswers(t *testing.T) {
	var log lines
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	lonely := base("b", "1", free)
	lonely.Logger = log.logger()
	b := start(t, lonely)
	until(t, "it says so", func() bool {
		return log.count(`msg="no gateway of the join list answers"`) > 0 && log.count(`no answer: `+free+`: connection refused`) > 0
	})
	if !errors.Is(b.Problem(), errNobody) {
		t.Errorf("problem %v", b.Problem())
	}
	// It keeps trying.
	late := base("a", "1")
	late.Bind = free
	a := start(t, late)
	sees(t, a, "a/1/alive", "b/1/alive")
	if n := log.count(`msg="no gateway of the join list answers"`); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// An attempt to join after the farewell would say, with a later stamp, that the
// gateway is alive.
func TestLeaveEndsJoining(t *testing.T) {
	a := start(t, base("a", "1"))
	b := start(t, base("b", "1", a.Addr()))
	sees(t, a, "a/1/alive", "b/1/alive")
	if err := b.Leave(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.stop:
	default:
		t.Error("it goes on joining")
	}
}

func TestCloseTwiceAndWhileJoining(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := start(t, base("a", "1", l.Addr().String()))
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("close took %v", took)
	}
}

// The same process can go on as another incarnation.
func TestSetBoot(t *testing.T) {
	a := start(t, base("a", "1"))
	b := start(t, base("b", "1", a.Addr()))
	sees(t, a, "a/1/alive", "b/1/alive")
	if err := b.SetBoot("1.1"); err != nil {
		t.Fatal(err)
	}
	sees(t, a, "a/1/alive", "b/1.1/alive")
	sees(t, b, "a/1/alive", "b/1.1/alive")
	if m := a.Members()[1]; m.PeerAddr != b.Addr() || m.Expect != 3 {
		t.Errorf("its other tags are gone: %+v", m)
	}
	for _, bad := range []string{"", strings.Repeat("x", tagLimit)} {
		if err := b.SetBoot(bad); !errors.Is(err, errConfig) {
			t.Errorf("%.10q: %v", bad, err)
		}
	}
}

// FuzzLogLine: what strangers make the libraries log has a component of one word.
func FuzzLogLine(f *testing.F) {
	f.Add("[ERR] memberlist: Failed to decode ping request: msgpack decode error [pos 2]: 0xde from=127.0.0.1:54770")
	f.Add("[WARN] serf: text without a cause")
	f.Add("[")
	f.Add("")
	f.Fuzz(func(t *testing.T, line string) {
		if component, _ := parseLine(line); strings.ContainsRune(component, ' ') {
			t.Errorf("%q: component %q", line, component)
		}
	})
}

// TestLeaveAfterClose: a farewell that comes too late is an error, and no panic.
func TestLeaveAfterClose(t *testing.T) {
	a := start(t, base("a", "1"))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Leave(); !errors.Is(err, errClosed) {
		t.Errorf("got %v", err)
	}
}
