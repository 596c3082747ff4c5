package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/internal/config"
)

// An unanswered probe of memberlist outlives its Shutdown by the rest of the probe's interval.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == guardName { // kgate exec starts its own program
		os.Exit(run(os.Args[1:], streams{os.Stdout, os.Stderr}))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probe"))
}

// startSingle starts one gateway on free ports in front of upstream.
func startSingle(t *testing.T, upstream string, change func(*config.Config)) *server {
	t.Helper()
	return startSingleOn(t, upstream, nil, change)
}

// startSingleOn is startSingle with sockets that are open already.
func startSingleOn(t *testing.T, upstream string, sockets map[string][]net.Listener, change func(*config.Config)) *server {
	t.Helper()
	at, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Node.Name = "gw-test"
	onLoopback(&cfg.Listen)
	pool := config.DefaultPool()
	pool.Name, pool.K, pool.Upstreams = "default", 1, []*url.URL{at}
	cfg.Pools = []config.Pool{pool}
	cfg.Routes = []config.Route{{Pool: pool.Name}}
	if change != nil {
		change(cfg)
	}
	if err := errors.Join(cfg.Validate(), cfg.Resolve()); err != nil {
		t.Fatal(err)
	}
	n, err := startServer(cfg, slog.New(slog.DiscardHandler), sockets)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := n.node.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return n
}

// answer is a response that has been read.
type answer struct {
	status int
	header http.Header
}

// get asks over a connection of its own.
func get(t *testing.T, n *server, header http.Header) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.clientAddr.String()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header}
}

// stubborn is an upstream that answers when it is told to.
func stubborn(t *testing.T) (*httptest.Server, chan struct{}, chan struct{}) {
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-leave:
		case <-r.Context().Done():
		}
		fmt.Fprintln(w, "ok")
	}))
	t.Cleanup(s.Close)
	return s, entered, leave
}

// The reason of a refusal passes from the gateway to the client.
func TestRefusalsReachTheClient(t *testing.T) {
	upstream, entered, leave := stubborn(t)
	n := startSingle(t, upstream.URL, func(c *config.Config) { c.Pools[0].Queue.Limit = 1 })
	held := make(chan int)
	go func() { held <- get(t, n, nil).status }()
	<-entered

	refused := func(a answer, reason string) {
		t.Helper()
		after, _ := strconv.Atoi(a.header.Get("Retry-After"))
		if a.status != http.StatusServiceUnavailable || a.header.Get("Kgate-Refusal") != reason || after < 1 {
			t.Errorf("got %d, Kgate-Refusal %q, Retry-After %q; want 503, %s, a second or more",
				a.status, a.header.Get("Kgate-Refusal"), a.header.Get("Retry-After"), reason)
		}
		if got, want := a.header.Get("Ratelimit-Policy"), `"default";q=1;qu="concurrent-requests"`; got != want {
			t.Errorf("RateLimit-Policy %q, want %q", got, want)
		}
	}
	refused(get(t, n, http.Header{"Prefer": {"wait=0"}}), "timeout")

	waiting := make(chan answer)
	go func() { waiting <- get(t, n, nil) }()
	for n.node.Stats("default").Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	refused(get(t, n, nil), "queue-full")

	done := make(chan error)
	go func() { done <- n.shutdown(t.Context()) }()
	refused(<-waiting, "draining")
	leave <- struct{}{}
	if got := <-held; got != http.StatusOK {
		t.Errorf("the request in flight at shutdown got %d", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestStatusCommand(t *testing.T) {
	upstream, _, _ := stubborn(t)
	n := startSingle(t, upstream.URL, nil)
	var out, errs strings.Builder
	if code := run([]string{"status", "--admin", "http://" + n.adminAddr.String()}, streams{&out, &errs}); code != exitOK {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	for _, want := range []string{"gateway gw-test", "ready", "default", "late"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestCommandLine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"version"}, exitOK, "kgate "},
		{[]string{"version", "--json"}, exitOK, `"version": `},
		{[]string{"--help"}, exitOK, "serve"},
		{[]string{"nonsense"}, exitUsage, "unexpected argument nonsense"},
		{[]string{"serve"}, exitUsage, "--upstream and --k"},
		{[]string{"serve", "--kk", "3"}, exitUsage, `did you mean "--k"`},
		{[]string{"serve", "--upstream", "http://127.0.0.1:1", "--k", "0"}, exitUsage, "from 1 to 65536"},
		{[]string{"serve", "--upstream", "http://127.0.0.1:1", "--k", "1", "--listen-peer", taken.Addr().String()}, exitFailure, "address already in use; stop the process that has it"},
		{[]string{"check", "-c", "../../configs/single.yaml"}, exitOK, "valid, 1 pool"},
		{[]string{"check", "-c", "/nonexistent"}, exitFailure, "no such file"},
		{[]string{"demo", "--k", "0"}, exitUsage, "at least 1"},
		{[]string{"pool", "set", "p", "--k"}, exitUsage, "kgate: --k needs a value\nTry: kgate pool set --help\n"},
		{[]string{"pool", "set", "p", "--k", "x"}, exitUsage, "kgate: --k \"x\": write a whole number\nTry: kgate pool set --help\n"},
		{[]string{"pool", "set", "p", "--k", "-1"}, exitUsage, "kgate: --k needs a value; if that is -1, write --k=-1\nTry: kgate pool set --help\n"},
		{[]string{"pool", "set", "p", "--k", "0"}, exitUsage, "it must be at least 1\nTry: kgate pool set --help\n"},
		{[]string{"pool", "set"}, exitUsage, "Try: kgate pool set --help\n"},
		{[]string{"pool"}, exitUsage, "Try: kgate pool --help\n"},
		{[]string{"drain", "--timeout", "5"}, exitUsage, "--timeout \"5\": write a number and a unit"},
		{[]string{"status", "--admin"}, exitUsage, "kgate: --admin needs a value\nTry: kgate status --help\n"},
		{[]string{"plan", "--hold-scv", "much"}, exitUsage, "--hold-scv \"much\": write a number"},
		{[]string{"status", "--admin", "localhost"}, exitUsage, "write http://HOST:PORT"},
		{[]string{"status", "--admin", "http://127.0.0.1:1"}, exitFailure, "is it running"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			var out strings.Builder
			if code := run(c.args, streams{&out, &out}); code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("exit %d, want %d, with %q in\n%s", code, c.code, c.says, out.String())
			}
		})
	}
}
