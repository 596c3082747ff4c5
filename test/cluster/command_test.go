package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os/exec"
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
		"--listen-peer", "127.0.0.1:0",
	}, more...)
}

// TestServeWithoutFile runs a gateway by flags alone, and asks it for its status.
func TestServeWithoutFile(t *testing.T) {
	u, url := ServeUpstream(t, &demo.Upstream{Hold: 5 * time.Millisecond})
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
	if r.Overall.Errors > 0 || r.Overall.Count == 0 || u.Stats().Max != 3 {
		t.Errorf("%d answers, failed %v, most in flight %d", r.Overall.Count, r.Overall.Failed, u.Stats().Max)
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
		"--listen-http": g.HTTP, "--listen-admin": g.Admin, "--listen-peer": g.Peer,
	} {
		expect(t, 1, []string{addr, "in use"}, simple(url, flag, addr, "--name", "second")...)
	}
	if code, err := g.Stop(); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	expect(t, 1, []string{"no gateway answers", g.Admin}, "status", "--admin", "http://"+g.Admin)
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
