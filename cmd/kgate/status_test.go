package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kgate/kgate/internal/admin"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// shownStatus is a fleet on a bad evening.
func shownStatus() (*admin.Status, map[string]admin.Line) {
	rtt, lease := 0.25, 2.4
	s := &admin.Status{
		Version: "1.2.3",
		Gateway: admin.Gateway{Name: "gw-1", Node: 7, Ready: true, UptimeSeconds: 93784},
		Cluster: admin.Cluster{View: 9, Leader: "gw-2", Voters: 3, Members: []admin.Member{
			{Name: "gw-1", Addr: "10.0.0.1:7080", Status: admin.StatusAlive, Votes: true, Self: true, LinkUp: true, Answers: true, Ready: true, LeaseSeconds: &lease, Copies: []string{"gw-2"}},
			{Name: "gw-2", Addr: "10.0.0.2:7080", Status: admin.StatusAlive, Votes: true, LinkUp: true, Answers: true, Ready: true, LeaseSeconds: &lease, RTTMillis: &rtt, Copies: []string{"gw-1"}},
			{Name: "gw-3", Status: admin.StatusSuspended, Votes: true, Successor: "gw-1"},
			{Name: "gw-4", Addr: "10.0.0.4:7080", Status: admin.StatusAlive, LinkUp: true},
		}},
		Pools: []admin.Pool{
			{Name: "downloads", K: 8, Binding: "late", Epoch: 4, Withheld: 1, Fleet: admin.PoolFleet{
				Missing: []string{"gw-4"}, InFlight: 6, Waiting: 31, OldestSeconds: 83.2, FreeTokens: 0, SpreadMillis: 2327.5,
				AccessWindow: admin.AccessWindow{MeanMillis: 12.5, MaxMillis: 2340, Count: 1234},
				Gateways: []admin.PoolPart{
					{Name: "gw-1", InFlight: 4, Waiting: 12, AccessWindow: admin.AccessWindow{MeanMillis: 12.5, Count: 1234}},
					{Name: "gw-2", InFlight: 2, Waiting: 19, Baton: true},
				},
			}},
			{Name: "licences", K: 200, Binding: "early", Epoch: 4, Fleet: admin.PoolFleet{InFlight: 50, Gateways: []admin.PoolPart{{Name: "gw-1", InFlight: 50, Baton: true}}}},
		},
	}
	line := admin.Line{Pool: "downloads", K: 8, InFlight: 6, Waiting: 31}
	for i := range 6 {
		line.Holders = append(line.Holders, admin.Entry{Gateway: "gw-1", Seconds: 3700 / float64(i+1), Client: "192.0.2.7", Method: "GET", Path: "/files/a-very-long-name-of-a-file-that-does-not-fit-into-the-line.iso"})
	}
	for i := range 12 {
		e := admin.Entry{Gateway: "gw-2", Position: i + 1, Seconds: 83.2 - float64(i)*7, Client: "192.0.2.9", Method: "PUT", Path: "/ü\x1b[31m\u202e/" + strings.Repeat("x", i)}
		if i == 1 {
			e = admin.Entry{Gateway: "gw-1", Position: 2, Seconds: 80, Ticket: true, Note: "nightly job"}
		}
		line.Line = append(line.Line, e)
	}
	return s, map[string]admin.Line{"downloads": line}
}

// TestStatusAt80Columns pins down what people see.
func TestStatusAt80Columns(t *testing.T) {
	for name, colour := range map[string]bool{"status": false, "status_colour": true} {
		var out bytes.Buffer
		s := newScreen(&out)
		s.colour = colour
		v := statusView{screen: s}
		v.print(shownStatus())
		if err := s.draw(v.out.String()); err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/"+name+".txt", out.String())
		for _, line := range strings.Split(out.String(), "\n") {
			if n := visibleLen(line); n > plainWidth {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		if strings.Contains(out.String(), "\x1b") != colour || !utf8.ValidString(out.String()) {
			t.Errorf("%s: signs that act on a terminal", name)
		}
	}
}

// TestStatusBeforeACluster: no table has a head without rows.
func TestStatusBeforeACluster(t *testing.T) {
	v := statusView{screen: newScreen(io.Discard)}
	v.print(&admin.Status{Gateway: admin.Gateway{Name: "gw-1"}, Pools: []admin.Pool{{Name: "files", K: 6}}}, nil)
	if head := regexp.MustCompile(`(?m)^[A-Z ]+$`).FindString(v.out.String()); head != "" {
		t.Errorf("%q in\n%s", head, v.out.String())
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got:\n%s\nwant:\n%s", file, got, want)
	}
}

// TestScreenOnATerminal: each text overwrites the last one without clearing it first, is cut to the
// terminal's height, and the terminal is restored at the end.
func TestScreenOnATerminal(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	s.terminal, s.size = true, func() (int, int) { return 80, 3 }
	end := s.open()
	for _, text := range []string{"one\ntwo\n", "1\n2\n3\n4\n"} {
		if err := s.draw(text); err != nil {
			t.Fatal(err)
		}
	}
	end()
	want := "\x1b[?1049h\x1b[?25l\x1b[Hone\x1b[K\ntwo\x1b[K\x1b[J\x1b[H1\x1b[K\n2\x1b[K\n...\x1b[K\x1b[J\x1b[?25h\x1b[?1049l"
	if out.String() != want {
		t.Errorf("%q\nwant\n%q", out.String(), want)
	}
}

// TestNoColor: NO_COLOR is for terminals; a file never has colours.
func TestNoColor(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	if s := newScreen(os.Stdout); s.colour {
		t.Error("colours in spite of NO_COLOR")
	}
}

// TestStatusWatchPiped: into a pipe it prints plain text every second, goes on when
// the gateway does not answer for a while, and ends without an error.
func TestStatusWatchPiped(t *testing.T) {
	status, _ := shownStatus()
	answers := make(chan bool, 1)
	answers <- true
	g := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/status" {
			http.NotFound(w, r)
			return
		}
		select {
		case <-answers:
			_ = json.NewEncoder(w).Encode(status)
		default:
			http.Error(w, "not now", http.StatusServiceUnavailable)
		}
	}))
	defer g.Close()
	r, err := adminAddrs{Admin: []string{g.URL}}.remote("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		s := newScreen(out)
		ended <- everySecond(ctx, func() error { return new(statusCommand).show(ctx, r, s) }, s)
		out.Close()
	}()
	lines := bufio.NewScanner(in)
	for _, want := range []string{"gateway gw-1, ready", "! ", "gateway gw-1, ready", "! "} {
		for lines.Scan() && (!strings.HasPrefix(lines.Text(), want) || want == "! " && !strings.Contains(lines.Text(), "answers 503")) {
		}
		if lines.Err() != nil || !strings.HasPrefix(lines.Text(), want) {
			t.Fatalf("no line that begins with %q; %v", want, lines.Err())
		}
	}
	cancel()
	for lines.Scan() {
	}
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	s := newScreen(io.Discard)
	if err := everySecond(t.Context(), func() error { return errors.New("nobody there") }, s); err == nil {
		t.Error("no error when the gateway does not even answer the first time")
	}
}
