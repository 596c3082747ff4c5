package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/demo"
)

// run runs kgate and returns what it says and its exit code.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, Binary(t), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errs, plainEnv()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Errorf("kgate %s does not end", strings.Join(args, " "))
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// expect checks the exit code, and that each of the words is said on standard
// error.
func expect(t *testing.T, wantCode int, words []string, args ...string) {
	t.Helper()
	_, said, code := run(t, args...)
	if code != wantCode {
		t.Errorf("kgate %s: exit code %d, want %d; it says: %s", strings.Join(args, " "), code, wantCode, said)
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("kgate %s: %q is not in: %s", strings.Join(args, " "), w, said)
		}
	}
	if strings.Contains(said, "panic") || strings.Contains(said, "goroutine ") {
		t.Errorf("kgate %s: %s", strings.Join(args, " "), said)
	}
}

// simple are the flags of a gateway without a file, on ports of its choice.
func simple(upstream string, more ...string) []string {
	return append([]string{
		"serve", "--upstream", upstream, "--k", "3",
		"--listen-http", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0",
		"--listen-peer", "127.0.0.1:0", "--listen-gossip", "127.0.0.1:0",
	}, more...)
}

// TestServeWithoutFile runs a gateway by flags alone, and asks it for its status.
func TestServeWithoutFile(t *testing.T) {
	u, url := ServeUpstream(t, demo.UpstreamConfig{Hold: demo.Distribution{Mean: 5 * time.Millisecond}, K: 3})
	g := launch(t, "alone", []string{Binary(t)}, simple(url), nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := g.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := demo.Run(ctx, demo.LoadConfig{Targets: []demo.Target{{URL: g.URL(), Clients: 20}}, Duration: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Overall.Errors() > 0 || r.Overall.Access.Count == 0 || u.Stats().Max != 3 {
		t.Errorf("%d answers, failed %v, most in flight %d", r.Overall.Access.Count, r.Overall.Failed, u.Stats().Max)
	}

	out, said, code := run(t, "status", "--json", "--admin", "http://"+g.Admin)
	var s admin.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != 0 {
		t.Fatalf("status --json: exit code %d, %v: %s%s", code, err, out, said)
	}
	if len(s.Pools) != 1 || s.Pools[0].Name != "default" || s.Pools[0].K != 3 || !s.Gateway.Ready || len(s.Cluster.Members) != 1 {
		t.Errorf("status: %s", out)
	}
	out, said, code = run(t, "status", "--admin", "http://"+g.Admin)
	if code != 0 || !strings.Contains(out, "default") {
		t.Errorf("status: exit code %d: %s%s", code, out, said)
	}

	// Each address in use is an error that names it.
	for flag, addr := range map[string]string{
		"--listen-http": g.HTTP, "--listen-admin": g.Admin, "--listen-peer": g.Peer, "--listen-gossip": g.Gossip,
	} {
		expect(t, 1, []string{addr, "in use"}, simple(url, flag, addr, "--name", "second")...)
	}
	if code, err := g.Stop(); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	expect(t, 1, []string{"no gateway answers", g.Admin}, "status", "--admin", "http://"+g.Admin)
}

// TestBadFlags has command lines that are wrong: exit code 2, and a word on what
// to write instead.
func TestBadFlags(t *testing.T) {
	for _, tt := range []struct {
		args string
		says []string
	}{
		{"", nil},
		{"sevre", []string{"serve"}},
		{"serve", []string{"--upstream"}},
		{"serve --nope", []string{"--nope"}},
		{"serve --upstream http://127.0.0.1:9 --k three", []string{"--k"}},
		{"serve --k 3", []string{"--upstream"}},
		{"serve --upstream http://127.0.0.1:9", []string{"--k"}},
		{"serve --upstream http://127.0.0.1:9 --k 0", []string{"--k"}},
		{"serve --upstream ftp://127.0.0.1:9 --k 3", []string{"--upstream", "http"}},
		{"serve --upstream http://127.0.0.1:9 --k 3 --listen-http nonsense", []string{"--listen-http"}},
		{"serve --upstream http://127.0.0.1:9 --k 3 --log-level loud", []string{"--log-level", "info"}},
		{"demo --k 0", []string{"--k"}},
		{"demo --binding lazy", []string{"late"}},
		{"demo --duration yesterday", []string{"--duration"}},
		{"status --admin nonsense", []string{"http://"}},
		{"check", []string{"-c"}},
	} {
		t.Run(tt.args, func(t *testing.T) { expect(t, 2, tt.says, strings.Fields(tt.args)...) })
	}
}

// TestBadFile has a file with several errors: all are reported at once, each with
// its line.
func TestBadFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.yaml")
	const text = `listen:
  htpp: ":8080"
pools:
  - name: downloads
    k: -1
    binding: sometimes
    upstreams: ["127.0.0.1:9000"]
    queue: {timeout: soon}
routes:
  - {pool: download}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	says := []string{
		file + ":2", "http", file + ":5", file + ":6", "late", file + ":7", file + ":8", file + ":10", "downloads",
	}
	expect(t, 1, says, "serve", "-c", file)
	expect(t, 1, says, "check", "-c", file)
	expect(t, 1, []string{"missing.yaml"}, "serve", "-c", filepath.Join(t.TempDir(), "missing.yaml"))
	if err := os.WriteFile(file, []byte("pools: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, 1, []string{file + ":"}, "serve", "-c", file)
}

// TestDemo runs the demo as README says.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	out, said, code := run(t, "demo", "--duration", "5s")
	if code != 0 || !strings.Contains(out, "most in flight at the upstream  6  (k = 6)") {
		t.Errorf("exit code %d: %s%s", code, out, said)
	}
	if said != "" {
		t.Errorf("on standard error: %s", said)
	}
	t.Log(out)
}

// TestVersion looks whether the binary names itself.
func TestVersion(t *testing.T) {
	out, said, code := run(t, "version")
	if code != 0 || !strings.HasPrefix(out, "kgate ") {
		t.Errorf("exit code %d: %s%s", code, out, said)
	}
}

// TestNoPortIsLeft shows that a gateway which cannot start leaves nothing
// behind: the address that was free is free again.
func TestNoPortIsLeft(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer := ReservePort(t)
	expect(t, 1, []string{"listen.admin", "in use"}, simple("http://127.0.0.1:9", "--listen-peer", peer, "--listen-admin", l.Addr().String())...)
	again, err := net.Listen("tcp", peer)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}
