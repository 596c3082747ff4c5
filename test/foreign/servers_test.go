package foreign

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// fetch returns a directory with the newest version of a repository.
func fetch(t *testing.T, variable, repository string) string {
	t.Helper()
	if os.Getenv("KGATE_FOREIGN") == "" {
		t.Skip("fetches what is not ours: set KGATE_FOREIGN=1")
	}
	if other := os.Getenv(variable); other != "" {
		repository = other
	}
	dir := filepath.Join(t.TempDir(), "cases")
	if out, err := exec.CommandContext(t.Context(), "git", "clone", "-q", "--depth", "1", repository, dir).CombinedOutput(); err != nil {
		t.Skipf("cannot fetch %s: %v\n%s", repository, err, out)
	}
	return dir
}

// server is one that cases are sent to.
type server struct{ name, addr string }

// servers starts the gateway, nginx and HAProxy before the same upstream, which returns what it
// gets.
func servers(t *testing.T) []server {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(body)
	}))
	t.Cleanup(upstream.Close)
	all := []server{{"kgate", gateway(t, upstream.URL)}}
	behind := strings.TrimPrefix(upstream.URL, "http://")
	if _, err := exec.LookPath("nginx"); err == nil {
		all = append(all, server{"nginx", nginx(t, behind)})
	}
	if _, err := exec.LookPath("haproxy"); err == nil {
		all = append(all, server{"HAProxy", haproxy(t, behind)})
	}
	return all
}

// everybody admits all requests.
type everybody struct{}

func (everybody) Acquire(context.Context, admission.Request) (proxy.Slot, error) { return slot{}, nil }

type slot struct{}

func (slot) Release()                       {}
func (slot) Fence() string                  { return "p/1/1/1" }
func (slot) Valid() bool                    { return true }
func (slot) OnLost(func())                  {}
func (slot) GrantInfo() admission.GrantInfo { return admission.GrantInfo{} }

func gateway(t *testing.T, upstream string) string {
	t.Helper()
	to, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := proxy.New(proxy.Config{
		Admitter: everybody{},
		Pools:    []proxy.Pool{{Name: "p", Upstreams: []*url.URL{to}, HoldMax: time.Minute, HoldIdle: time.Minute}},
		Routes:   []proxy.Route{{Pool: "p"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := downstream.NewServer(downstream.Config{Handler: handler})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

func nginx(t *testing.T, behind string) string {
	t.Helper()
	addr, dir := cluster.ReservePort(t), t.TempDir()
	var temp strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "%s_temp_path %s/%s; ", kind, dir, kind)
	}
	config := fmt.Sprintf(`daemon off; master_process off; pid %s/pid; error_log /dev/null;
events { worker_connections 200; }
http { access_log off; %s
  server { listen %s; location / { proxy_pass http://%s; proxy_http_version 1.1; proxy_set_header Connection ""; } }
}
`, dir, temp.String(), addr, behind)
	return start(t, addr, "nginx", "-e", "/dev/null", "-p", dir, "-c", write(t, config))
}

func haproxy(t *testing.T, behind string) string {
	t.Helper()
	addr := cluster.ReservePort(t)
	return start(t, addr, "haproxy", "-db", "-q", "-f", write(t, fmt.Sprintf(`defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
listen all
  bind %s
  server up %s
`, addr, behind)))
}

func start(t *testing.T, addr, name string, args ...string) string {
	t.Helper()
	cluster.StartProcess(t, name, args...)
	if err := cluster.AwaitListening(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	return addr
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// answer is what came of bytes.
type answer struct {
	statuses []int
	closed   bool // by the server, within patience
}

// status returns that of the first answer; 0: there is none.
func (a answer) status() int {
	if len(a.statuses) == 0 {
		return 0
	}
	return a.statuses[0]
}

// patience is how long an answer may take, and how long it is waited for a further one.
const patience = 1500 * time.Millisecond

// send sends bytes and reads answers until nothing more comes.
func send(t *testing.T, addr string, sent []byte) (a answer) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = conn.Write(sent) }()
	br := bufio.NewReader(conn)
	method, _, _ := bytes.Cut(sent, []byte{' '})
	for {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		res, err := http.ReadResponse(br, &http.Request{Method: string(method)})
		if err != nil {
			a.closed = !errors.Is(err, os.ErrDeadlineExceeded)
			return a
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		a.statuses = append(a.statuses, res.StatusCode)
	}
}
