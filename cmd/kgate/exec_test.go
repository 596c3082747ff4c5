//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/client"
	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/admin/admintest"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/internal/timing"
)

// fakeGateway answers as a gateway with tickets does.
type fakeGateway struct {
	*admintest.Tickets
	url string
}

func startFake(t *testing.T, pools map[string]int) *fakeGateway {
	t.Helper()
	g := &fakeGateway{Tickets: admintest.NewTickets(pools)}
	h := admin.NewTicketHandler(admin.TicketConfig{Tickets: g.Tickets})
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		var s admin.Status
		for name, k := range pools {
			s.Pools = append(s.Pools, admin.Pool{Name: name, K: k})
		}
		_ = json.NewEncoder(w).Encode(s)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func TestExecExitCodes(t *testing.T) {
	g := startFake(t, map[string]int{"p": 1})
	two := startFake(t, map[string]int{"p": 1, "q": 1})
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("no interpreter"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"success":            {[]string{"--", "sh", "-c", "echo $KGATE_FENCE"}, 0, "p/1/"},
		"without dashes":     {[]string{"sh", "-c", "exit 3"}, 3, ""},
		"the command's":      {[]string{"--", "sh", "-c", "exit 42"}, 42, ""},
		"one is free":        {[]string{"--wait", "0", "--", "echo", "ran"}, 0, "ran"},
		"its flags":          {[]string{"--pool", "p", "--", "echo", "--wait", "x"}, 0, "--wait x"},
		"ended by a signal":  {[]string{"--", "sh", "-c", "kill -9 $$"}, 137, ""},
		"no such command":    {[]string{"--", "nonexistent-command"}, 127, "not found"},
		"no such file":       {[]string{"--", filepath.Join(dir, "nothing")}, 127, "no such file"},
		"not executable":     {[]string{"--", dir}, 126, "is a directory"},
		"not a program":      {[]string{"--", script}, 126, "exec format error"},
		"no command":         {[]string{}, exitUsage, "<command>"},
		"nothing after --":   {[]string{"--"}, exitUsage, "command"},
		"no such pool":       {[]string{"--pool", "x", "--", "true"}, exitFailure, `there is no such pool: "x"`},
		"a ttl of a year":    {[]string{"--ttl", "8760h", "--", "true"}, exitUsage, "between 1s and 10m0s"},
		"which pool":         {[]string{"--admin", two.url, "--", "true"}, exitUsage, "--pool: which one of"},
		"nobody there":       {[]string{"--pool", "p", "--admin", "http://127.0.0.1:1", "--", "true"}, 69, "no gateway answers"},
		"nobody there, pool": {[]string{"--admin", "http://127.0.0.1:1,http://127.0.0.1:2", "--", "true"}, 69, "no gateway answers"},
		"the second":         {[]string{"--admin", "http://127.0.0.1:1," + g.url, "--", "echo", "ran"}, 0, "ran"},
		"token file":         {[]string{"--admin-token-file", filepath.Join(dir, "none"), "--", "true"}, exitFailure, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"exec"}, tc.args...)
			if !strings.Contains(strings.Join(args, " "), "--admin ") {
				t.Setenv("KGATE_ADMIN", g.url)
			}
			var out output
			if code := run(args, streams{&out, &out}); code != tc.code || !strings.Contains(out.String(), tc.says) {
				t.Errorf("exit %d, want %d, with %q in\n%s", code, tc.code, tc.says, out.String())
			}
			if granted, waiting := g.Count("p"); granted+waiting != 0 {
				t.Errorf("%d slots and %d places left behind", granted, waiting)
			}
		})
	}
}

// start runs kgate exec in the background; the result is its exit code. Its ttl is so long that a
// machine which has other work does not cost it its slot.
func start(g *fakeGateway, out *output, args ...string) <-chan int {
	done := make(chan int, 1)
	go func() {
		done <- run(append([]string{"exec", "--admin", g.url, "--ttl", "20s"}, args...), streams{out, out})
	}()
	return done
}

func TestExecWaits(t *testing.T) {
	g := startFake(t, map[string]int{"p": 1})
	var first, second output
	release := filepath.Join(t.TempDir(), "go")
	one := start(g, &first, "--", "sh", "-c", "echo in; while [ ! -e "+release+" ]; do sleep .01; done")
	await(t, "the first command", func() bool { return strings.Contains(first.String(), "in") })
	for _, wait := range []string{"0", "50ms"} {
		var none output
		if code := <-start(g, &none, "--wait", wait, "--", "echo", "ran"); code != exitNoSlot || strings.Contains(none.String(), "ran") {
			t.Errorf("--wait %s: exit %d, %s", wait, code, none.String())
		}
	}
	two := start(g, &second, "--", "echo", "in")
	await(t, "a place in line", func() bool { _, waiting := g.Count("p"); return waiting == 1 })
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if a, b := <-one, <-two; a != 0 || b != 0 || !strings.Contains(second.String(), "in") {
		t.Errorf("exit %d and %d, %q", a, b, second.String())
	}
}

// A command that has lost its slot gets SIGTERM, and SIGKILL when it goes on.
func TestExecLosesItsSlot(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		code   int
		within time.Duration
		ttl    string
	}{
		"it ends":    {"trap 'echo told; exit 5' TERM; echo $KGATE_TICKET; while :; do sleep .01; done", 5, 15 * time.Second, "30s"},
		"it goes on": {"trap 'echo told' TERM; echo $KGATE_TICKET; while :; do sleep .01; done", 137, 12 * time.Second, "2s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startFake(t, map[string]int{"p": 1})
			var out output
			done := start(g, &out, "--ttl", tc.ttl, "--", "sh", "-c", tc.script)
			await(t, "the command", func() bool { return strings.HasSuffix(out.String(), "\n") })
			begun := time.Now()
			g.Drop(strings.TrimSpace(out.String()), admission.EndLost)
			code := <-done
			timing.Within(t, name, time.Since(begun), tc.within)
			if code != tc.code || !strings.Contains(out.String(), "the slot is lost") || tc.code == 5 && !strings.Contains(out.String(), "told") {
				t.Errorf("exit %d, want %d:\n%s", code, tc.code, out.String())
			}
		})
	}
}

// kgate in a process of its own, so that it can be signalled and killed.
func startProcess(t *testing.T, g *fakeGateway, out *output, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExecProcess$")
	line, err := json.Marshal(append([]string{"exec", "--admin", g.url, "--ttl", "40s"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "KGATE_TEST_ARGS="+string(line))
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestExecProcess(t *testing.T) {
	var args []string
	if json.Unmarshal([]byte(os.Getenv("KGATE_TEST_ARGS")), &args) != nil {
		t.Skip("is what other tests start")
	}
	os.Exit(run(args, streams{os.Stdout, os.Stderr}))
}

func TestExecPassesSignalsOn(t *testing.T) {
	g := startFake(t, map[string]int{"p": 1})
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
		var out output
		// The child's child gets it, too: the group does.
		cmd := startProcess(t, g, &out, "--", "sh", "-c", fmt.Sprintf(
			`trap 'echo got; exit 7' %d; sh -c 'trap "echo got; exit" %d; echo ready; while :; do sleep .01; done'`, s, s))
		await(t, "the command", func() bool { return strings.Contains(out.String(), "ready") })
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 7 {
			t.Errorf("%v: exit %d, %s", s, code, out.String())
		}
		if got := strings.Count(out.String(), "got"); got != 2 {
			t.Errorf("%v: %d processes got it", s, got)
		}
	}
	// While it waits, a signal ends the wait.
	var first, second output
	holder := startProcess(t, g, &first, "--", "sh", "-c", "echo in; exec sleep 10")
	await(t, "the holder", func() bool { return strings.Contains(first.String(), "in") })
	waiter := startProcess(t, g, &second, "--", "echo", "ran")
	await(t, "a place in line", func() bool { _, waiting := g.Count("p"); return waiting == 1 })
	if err := waiter.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = waiter.Wait()
	if code := waiter.ProcessState.ExitCode(); code != 128+15 {
		t.Errorf("exit %d, %s", code, second.String())
	}
	if _, waiting := g.Count("p"); waiting != 0 {
		t.Error("it still is in line")
	}
	if err := holder.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
}

// When kgate itself is killed, its command and the command's children do not go on without a slot.
func TestExecIsKilled(t *testing.T) {
	for name, trap := range map[string]string{"they end": `trap "echo told; exit" TERM`, "they go on": `trap "" TERM`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startFake(t, map[string]int{"p": 1})
			var out output
			cmd := startProcess(t, g, &out, "--", "sh", "-c", fmt.Sprintf(
				`trap : USR1; sh -c 'trap "echo heard" USR1; %s; echo up; while :; do sleep .01; done'; echo`, trap))
			await(t, "the command", func() bool { return strings.Contains(out.String(), "up") })
			// Once kgate passes signals on, it has told the guard which process to watch.
			if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			await(t, "a signal", func() bool { return strings.Contains(out.String(), "heard") })
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = cmd.Wait() // until nobody can write any more
			}()
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Fatal("what the command has started goes on")
			}
			if got := strings.Contains(out.String(), "told"); got != (name == "they end") {
				t.Errorf("got SIGTERM: %v", got)
			}
		})
	}
}

// A command does not go on without a slot either if kgate is killed as the command begins: by the command
// itself, or at a random moment.
func TestExecIsKilledAsItsCommandBegins(t *testing.T) {
	kills := 24
	if os.Getenv("KGATE_SOAK") != "" {
		kills = 400
	}
	g := startFake(t, map[string]int{"p": kills})
	var left atomic.Int32
	var running sync.WaitGroup
	defer running.Wait()
	atOnce := make(chan struct{}, 4)
	for i := range kills {
		running.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			var out output
			first := "kill -9 $PPID"
			if i%2 == 1 {
				first = ":"
			}
			cmd := startProcess(t, g, &out, "--ttl", "2s", "--", "sh", "-c", `trap "" TERM; `+first+`; for i in $(seq 200); do sleep .1; done`)
			if i%2 == 1 {
				granted := time.NewTimer(rand.N(40 * time.Millisecond))
				<-granted.C
				_ = cmd.Process.Kill()
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = cmd.Wait() // until nobody can write any more
			}()
			select {
			case <-ended:
			case <-time.After(15 * time.Second):
				left.Add(1)
				<-ended
			}
		})
	}
	running.Wait()
	if n := left.Load(); n > 0 {
		t.Errorf("%d of %d commands go on", n, kills)
	}
}

// TestLeavesItsGroup is a command that does as a shell with job control: it has a process
// group of its own, and ignores SIGTERM.
func TestLeavesItsGroup(t *testing.T) {
	if os.Getenv("KGATE_TEST_LEAVES") == "" {
		t.Skip("is what another test starts")
	}
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("as", os.Getpid(), syscall.Setpgid(0, 0))
	fmt.Println("ticket", os.Getenv("KGATE_TICKET"))
	time.Sleep(20 * time.Second)
}

// A command that leaves its process group ends with its slot, and with kgate.
func TestExecEndsWhatLeavesItsGroup(t *testing.T) {
	t.Setenv("KGATE_TEST_LEAVES", "1")
	for name, end := range map[string]func(*fakeGateway, *exec.Cmd, string){
		"the slot is lost": func(g *fakeGateway, _ *exec.Cmd, ticket string) { g.Drop(ticket, admission.EndLost) },
		"kgate is killed":  func(_ *fakeGateway, cmd *exec.Cmd, _ string) { _ = cmd.Process.Kill() },
	} {
		g := startFake(t, map[string]int{"p": 1})
		var out output
		cmd := startProcess(t, g, &out, "--ttl", "2s", "--", os.Args[0], "-test.run=^TestLeavesItsGroup$")
		await(t, "the command", func() bool { _, after, _ := strings.Cut(out.String(), "ticket "); return strings.Contains(after, "\n") })
		_, ticket, _ := strings.Cut(out.String(), "ticket ")
		ticket, _, _ = strings.Cut(ticket, "\n")
		began := time.Now()
		end(g, cmd, ticket)
		_ = cmd.Wait() // until nobody can write any more
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: it has gone on for %v:\n%s", name, took, out.String())
		}
	}
}

// When the slot is lost and the command ends, its children do not go on, even if they ignore SIGTERM.
func TestExecLosesItsSlotAndItsCommand(t *testing.T) {
	g := startFake(t, map[string]int{"p": 1})
	var out output
	cmd := startProcess(t, g, &out, "--", "sh", "-c", `sh -c 'trap "" TERM; echo $KGATE_TICKET; while :; do sleep .01; done' & wait`)
	await(t, "the command's child", func() bool { return strings.HasSuffix(out.String(), "\n") })
	g.Drop(strings.TrimSpace(out.String()), admission.EndLost)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // until nobody can write any more
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("what the command has started goes on")
	}
	if code := cmd.ProcessState.ExitCode(); code != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("exit %d, want that of the command, which SIGTERM has ended:\n%s", code, out.String())
	}
}

// kgate exec leaves no process of its own behind. A process that the command leaves behind goes on.
func TestExecLeavesNothingBehind(t *testing.T) {
	g := startFake(t, map[string]int{"p": 1})
	await(t, "what lost slots have left in other tests", func() bool {
		_, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		return errors.Is(err, syscall.ECHILD)
	})
	for _, command := range []string{"true", "/"} { // the second one cannot run
		var out output
		<-start(g, &out, "--", command)
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
			t.Errorf("%s: process %d is left, %v", command, pid, err)
		}
	}
	file := filepath.Join(t.TempDir(), "after")
	var out output
	<-start(g, &out, "--", "sh", "-c", "(sleep .2; echo >"+file+") >/dev/null 2>&1 &")
	await(t, "the process that the command has left", func() bool { _, err := os.Stat(file); return err == nil })
}

// roundTrip answers in memory.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A command that has lost its slot is killed before another holder can have the slot, for any time to
// live and any moment at which renewals begin to fail, also if its clock is a tenth slow and the clock of
// the ticket's gateway a tenth fast.
func TestKilledBeforeTheSlotIsGone(t *testing.T) {
	for late, answers := range []int{0, 1, 5} { // renewals that are answered
		for ttl := time.Second; ttl <= 10*time.Minute; ttl += time.Second {
			synctest.Test(t, func(t *testing.T) {
				left := answers
				var expires time.Time // at the gateways
				gateways, err := client.New(client.Config{TTL: ttl, HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPut {
						if left--; left < 0 {
							<-r.Context().Done()
							return nil, r.Context().Err()
						}
					}
					expires = time.Now().Add(pool.KeepFor(ttl) * 9 / 11)
					return &http.Response{
						StatusCode: http.StatusOK, Header: http.Header{}, Request: r,
						Body: io.NopCloser(strings.NewReader(`{"id": "a", "state": "granted", "fence": "p/1/1/1"}`)),
					}, nil
				})}})
				if err != nil {
					t.Fatal(err)
				}
				slot, err := gateways.Acquire(t.Context(), "p")
				if err != nil {
					t.Fatal(err)
				}
				<-slot.Lost()
				time.Sleep(slot.Grace() * time.Duration(late) / 2) // the command's watcher wakes late
				time.Sleep(slot.Grace())
				if spare := time.Until(expires); spare < 100*time.Millisecond {
					t.Errorf("ttl %v: killed %v before the slot is somebody else's", ttl, spare)
				}
				_ = slot.Release()
			})
		}
	}
}

// A command whose pool bounds how long a slot may be held is killed before that time ends, and not much
// before, also if the clocks run at different rates.
func TestKilledBeforeTheHoldEnds(t *testing.T) {
	const fast = 1.1 / 0.9 // the gateway's clock, by the command's
	for ttl := time.Second; ttl <= 10*time.Minute; ttl += 7 * time.Second {
		for _, hold := range []time.Duration{ttl / 2, ttl, 3 * ttl} {
			synctest.Test(t, func(t *testing.T) {
				ends := time.Now().Add(time.Duration(float64(hold) / fast))
				gateways, err := client.New(client.Config{TTL: ttl, HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					kept := min(time.Duration(float64(time.Until(ends))*fast), pool.KeepFor(ttl))
					held := pool.Ticket{TTL: ttl, Expires: kept}
					return &http.Response{
						StatusCode: http.StatusOK, Header: http.Header{}, Request: r,
						Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"id": "a", "state": "granted", "fence": "p/1/1/1", "left": "%v"}`, held.Left(0)))),
					}, nil
				})}})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				slot, err := gateways.Acquire(t.Context(), "p")
				if err != nil {
					t.Fatal(err)
				}
				select {
				case <-slot.Lost():
				case <-time.After(time.Until(ends)):
				}
				held := time.Since(began)
				time.Sleep(slot.Grace())
				if spare := time.Until(ends); spare < 100*time.Millisecond {
					t.Errorf("ttl %v, hold %v: killed %v before the slot is somebody else's", ttl, hold, spare)
				}
				if least := ends.Sub(began)/2 - 2*slot.Grace() - 100*time.Millisecond; held < least {
					t.Errorf("ttl %v, hold %v: lost after %v of %v", ttl, hold, held, ends.Sub(began))
				}
				_ = slot.Release()
			})
		}
	}
}
