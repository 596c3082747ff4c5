package serfring

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"go.uber.org/goleak"
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

func base(name, boot string, join ...string) Config {
	return Config{
		Name: name, Boot: boot, PeerAddr: "127.0.0.1:7080", Version: "1.0", Expect: 3,
		Bind: "127.0.0.1:0", Join: join,
		RetryInterval: 50 * time.Millisecond, LeaveDelay: 20 * time.Millisecond,
	}
}

func start(t *testing.T, c Config) *Agent {
	t.Helper()
	a, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// sees waits, on the agent's own channel, until it sees exactly the members
// described as name/boot/status.
func sees(t *testing.T, a *Agent, want ...string) {
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
	want := Member{Name: "b", PeerAddr: "127.0.0.1:7080", Boot: "1", Expect: 3, Status: StatusAlive, Addr: b.Addr()}
	if got := a.Members()[1]; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestLeaveAndFailure(t *testing.T) {
	a := start(t, base("a", "1"))
	stays := base("b", "1", a.Addr())
	stays.LeaveDelay = time.Second // however busy the machine, the word gets out
	b := start(t, stays)
	c := start(t, base("c", "1", a.Addr()))
	sees(t, a, "a/1/alive", "b/1/alive", "c/1/alive")
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
	var hers, his lines
	first := base("a", "1")
	first.Logger = hers.logger()
	a := start(t, first)
	b := start(t, base("b", "1", a.Addr()))
	sees(t, b, "a/1/alive", "b/1/alive")
	second := base("a", "2", a.Addr(), b.Addr())
	second.Logger = his.logger()
	twin := start(t, second)
	until(t, "it is refused", func() bool { return errors.Is(twin.Problem(), ErrName) })
	if n := len(twin.Members()); n != 1 {
		t.Errorf("the newcomer sees %d members, want itself", n)
	}
	sees(t, a, "a/1/alive", "b/1/alive")
	sees(t, b, "a/1/alive", "b/1/alive")
	// Once a minute, and with the remedy.
	until(t, "the asked one says it", func() bool { return hers.count("its name is in use") >= 1 })
	if n := his.count("give every gateway a name of its own"); n != 1 {
		t.Errorf("the newcomer says it %d times", n)
	}
	if n := hers.count("give every gateway a name of its own"); n != 1 {
		t.Errorf("the asked one says it %d times", n)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	sees(t, twin, "a/2/alive", "b/1/alive")
	sees(t, b, "a/2/alive", "b/1/alive")
	until(t, "no problem any more", func() bool { return twin.Problem() == nil })
}

func TestGossipKeys(t *testing.T) {
	key := func(b byte) [][]byte { return [][]byte{bytes.Repeat([]byte{b}, KeySize)} }
	for _, tt := range []struct {
		name          string
		theirs, yours [][]byte
		joins         bool
	}{
		{"same", key(1), key(1), true},
		{"another", key(1), key(2), false},
		{"none here", key(1), nil, false},
		{"none there", nil, key(1), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log, other lines
			first := base("a", "1")
			first.Keys, first.Logger = tt.theirs, other.logger()
			a := start(t, first)
			second := base("b", "1", a.Addr())
			second.Keys, second.Logger = tt.yours, log.logger()
			b := start(t, second)
			if tt.joins {
				sees(t, a, "a/1/alive", "b/1/alive")
				return
			}
			until(t, "it says so", func() bool {
				return log.count("msg=\"not joined: gossip key differs, or the other gateway has just ended\"") > 0
			})
			if !errors.Is(b.Problem(), ErrKey) {
				t.Errorf("problem %v", b.Problem())
			}
			sees(t, a, "a/1/alive")
		})
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
		return log.count(`msg="no gateway of the join list answers"`) > 0 && log.count(`error="failed to join `+free+`: dial tcp `) > 0
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

func TestBindFails(t *testing.T) {
	a := start(t, base("a", "1"))
	taken := base("b", "1")
	taken.Bind = a.Addr()
	if _, err := Start(taken); !errors.Is(err, errBind) || !strings.Contains(err.Error(), a.Addr()) {
		t.Errorf("%v", err)
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
	if m := a.Members()[1]; m.PeerAddr != "127.0.0.1:7080" || m.Expect != 3 {
		t.Errorf("its other tags are gone: %+v", m)
	}
	for _, bad := range []string{"", strings.Repeat("x", tagLimit)} {
		if err := b.SetBoot(bad); !errors.Is(err, errConfig) {
			t.Errorf("%.10q: %v", bad, err)
		}
	}
}

// FuzzLogLine: what strangers make the libraries log becomes one line of few
// causes.
func FuzzLogLine(f *testing.F) {
	f.Add("[ERR] memberlist: Failed to decode ping request: msgpack decode error [pos 2]: 0xde from=127.0.0.1:54770")
	f.Add("[WARN] serf: text without a cause")
	f.Add("[")
	f.Add("")
	f.Fuzz(func(t *testing.T, line string) {
		_, component, text := parseLine(line)
		if strings.ContainsRune(component, ' ') || strings.ContainsFunc(cause(text), unicode.IsDigit) {
			t.Errorf("%q: component %q, cause %q", line, component, cause(text))
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
