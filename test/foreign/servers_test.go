package foreign

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// others reports whether what takes long is asked for: cases that are fetched, and other servers.
func others() bool { return os.Getenv("KGATE_FOREIGN") != "" || os.Getenv("KGATE_SOAK") != "" }

// fetch returns a directory with the newest version of a repository.
func fetch(t *testing.T, variable, repository string) string {
	t.Helper()
	if !others() {
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
		if r.URL.Path == "/echo" { // Http11Probe asks so which fields have come
			_ = r.Header.Write(w)
			return
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(upstream.Close)
	return before(t, strings.TrimPrefix(upstream.URL, "http://"))
}

// before starts the gateway, nginx and HAProxy before the upstream at an address.
func before(t *testing.T, behind string) []server {
	t.Helper()
	all := []server{{"kgate", gateway(t, "http://"+behind)}}
	for name, start := range map[string]func(*testing.T, string) string{"nginx": cluster.StartNginx, "HAProxy": cluster.StartHAProxy} {
		if _, err := exec.LookPath(strings.ToLower(name)); err == nil {
			all = append(all, server{name, start(t, behind)})
		}
	}
	slices.SortStableFunc(all[1:], func(a, b server) int { return -strings.Compare(a.name, b.name) })
	return all
}

// everybody admits all requests.
type everybody struct{}

func (everybody) Acquire(context.Context, admission.Request) (proxy.Slot, error) { return slot{}, nil }

type slot struct{}

func (slot) Release()                       {}
func (slot) Fence() string                  { return "p/1/1/1" }
func (slot) Valid() bool                    { return true }
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
