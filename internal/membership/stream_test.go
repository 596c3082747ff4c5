package membership

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
)

// still is a discovery that sees nobody.
type still struct{}

func (still) Members() []serfring.Member { return nil }
func (still) Changed() <-chan struct{}   { return nil }
func (still) SetBoot(string) error       { return nil }

func testStream(t *testing.T, admit func(conn net.Conn, cluster, server string) error) *raftStream {
	t.Helper()
	var n network
	n.note("here", "")
	s := newRaftStream(layer{n.listen(t, ""), &n, "here", func(a string) string { return a }}, func() string { return "c1" },
		admit, time.Second, slog.New(slog.DiscardHandler))
	s.open()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestGreeting(t *testing.T) {
	var got string
	s := testStream(t, func(_ net.Conn, cluster, server string) error {
		got = cluster + " to " + server
		if server != "a b/1" {
			return errors.New("not me")
		}
		return nil
	})
	addr := s.Addr().String()
	go func() {
		conn, err := s.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn)
		}
	}()
	conn, err := s.Dial(address(addr, "a b/1"), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if got != "c1 to a b/1" {
		t.Errorf("greeting %q", got)
	}
	// What follows the greeting arrives unharmed.
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	echo := make([]byte, 5)
	if _, err := io.ReadFull(conn, echo); err != nil || string(echo) != "hello" {
		t.Fatalf("%q, %v", echo, err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Dial(address(addr, "b/1"), time.Second); !errors.Is(err, errGreeting) || !strings.Contains(err.Error(), "not me") {
		t.Errorf("%v", err)
	}
}

// Bytes that are no greeting are refused, and the next one is served.
func TestGreetingRefusesGarbage(t *testing.T) {
	s := testStream(t, func(net.Conn, string, string) error { return nil })
	for _, garbage := range []string{
		"\n", "GET / HTTP/1.1\r\n\r\n", "kgate-raft/2 c1 a/1\n", "kgate-raft/1\n", "kgate-raft/1 c1\n",
		strings.Repeat("x", 2*greetingMax), "\x00\x01\x02\n",
	} {
		conn, err := dialWire(t.Context(), s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, garbage)
		answer, _ := io.ReadAll(conn)
		if len(answer) != 0 {
			t.Errorf("%.20q is answered with %q", garbage, answer)
		}
		_ = conn.Close()
	}
	if _, err := s.Dial(address(s.Addr().String(), "a/1"), time.Second); err == nil {
		go func() { _, _ = s.Accept() }()
	} else {
		t.Error(err)
	}
}

// A peer that opens connections and says nothing takes a bounded number of
// places, and gives them back.
func TestSilentConnectionsAreBounded(t *testing.T) {
	s := testStream(t, func(net.Conn, string, string) error { return nil })
	var open []net.Conn
	for range greetingsAtOnce + 10 {
		conn, err := dialWire(t.Context(), s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	refused := 0
	for _, conn := range open {
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || isReset(err) {
			refused++
		}
		_ = conn.Close()
	}
	if refused != len(open) {
		t.Errorf("%d of %d silent connections were ended", refused, len(open))
	}
	until(t, "a place is free", func() bool {
		conn, err := s.Dial(address(s.Addr().String(), "a/1"), time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func isReset(err error) bool { return err != nil && strings.Contains(err.Error(), "reset") }

// An incarnation with an empty memory does not vote for the one that was at
// its address before; another cluster's leader is nobody to it.
func TestAdmit(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		g := n.start(t, "a", config{expect: 1})
		g.ready()
		own := g.stats()
		for _, tt := range []struct {
			cluster, server string
			ok              bool
		}{
			{own.Cluster, own.Server, true},
			{own.Cluster, "a/another", false},
			{"other", own.Server, false},
			{"", own.Server, false},
		} {
			if err := g.guard.admit(nil, tt.cluster, tt.server); (err == nil) != tt.ok {
				t.Errorf("admit(%q, %q) = %v", tt.cluster, tt.server, err)
			}
		}
		blank := n.start(t, "b", config{expect: 1, joining: true})
		if err := blank.guard.admit(nil, "any", blank.stats().Server); err != nil {
			t.Errorf("a gateway with an empty log goes with whoever lets it in: %v", err)
		}
	})
}

func TestRaftLogIsQuietAndShort(t *testing.T) {
	var lines strings.Builder
	logger := newRaftLogger(func() bool { return false }, slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	for range 3 {
		logger.Info("entering candidate state", "term", 3)
		logger.Warn("heartbeat timeout reached, starting election")
		logger.Error("failed to install snapshot", "peer", "10.0.0.1:7080", "error", io.EOF)
		logger.Error("failed to install snapshot", "peer", "10.0.0.2:7080", "error", io.EOF)
	}
	want := fmt.Sprintf("%s\n%s\n",
		`level=WARN msg=raft detail="failed to install snapshot" fields="peer=10.0.0.1:7080 error=EOF"`,
		`level=WARN msg=raft detail="failed to install snapshot" fields="peer=10.0.0.2:7080 error=EOF"`)
	if lines.String() != want {
		t.Errorf("got\n%s\nwant\n%s", lines.String(), want)
	}
}

var _ raft.StreamLayer = (*raftStream)(nil)
