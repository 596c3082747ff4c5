package haproxy

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/test/cluster"
)

// patience is how long a single thing may take that does not depend on luck.
const patience = 20 * time.Second

// waitHeader has HAProxy's txn.kgate_wait in its answers.
const waitHeader = "Test-Wait"

var soak = os.Getenv("KGATE_SOAK") != ""

func TestMain(m *testing.M) {
	code := cluster.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// options of a HAProxy that is configured as contrib/haproxy/haproxy.cfg says.
type options struct {
	admins   []string // addresses of gateways, asked in turn
	upstream string
	ttl      int // s
	wait     int // s
	// blind takes the HAProxy's admin socket from the script: it cannot break
	// off a stream.
	blind bool
	paths bool // not all need a slot
}

// haproxy is a process and where it listens.
type haproxy struct {
	*cluster.Process
	url string
	// config is the file's name, to start another one that takes over.
	config string
}

// start starts a HAProxy and waits until it listens.
func start(t *testing.T, o options) *haproxy {
	t.Helper()
	addr := cluster.ReservePort(t)
	// A socket's name has room for about a hundred bytes, less than many a TempDir.
	dir, err := os.MkdirTemp("", "ha")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "cli.sock")
	script, err := filepath.Abs("../../contrib/haproxy/kgate.lua")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../contrib/haproxy/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	config := string(text)
	replace := func(old, with string) {
		t.Helper()
		if !strings.Contains(config, old) {
			t.Fatalf("haproxy.cfg has no %q", old)
		}
		config = strings.ReplaceAll(config, old, with)
	}
	replace("127.0.0.1:9080 10.0.0.2:9080 10.0.0.3:9080", strings.Join(o.admins, " "))
	replace("KGATE_TTL 10", fmt.Sprintf("KGATE_TTL %d", o.ttl))
	replace("KGATE_WAIT 60", fmt.Sprintf("KGATE_WAIT %d", o.wait))
	if o.blind {
		replace("setenv KGATE_CLI", "# setenv KGATE_CLI")
	}
	replace("/run/haproxy/kgate.sock", socket)
	replace("/etc/haproxy/kgate.lua", script)
	replace("bind :80", "bind "+addr)
	if !o.paths {
		replace(" unless plain !{ path_beg -i /downloads }", "")
	}
	replace("str(downloads)", "str("+cluster.PoolName+")")
	replace("set-var-fmt(txn.kgate_stream) %rt", "set-var-fmt(txn.kgate_stream) %rt\n    http-response set-header "+waitHeader+" %[var(txn.kgate_wait)]\n   ")
	replace("10.0.1.1:80", strings.TrimPrefix(o.upstream, "http://"))
	h := &haproxy{url: "http://" + addr + "/", config: filepath.Join(dir, "haproxy.cfg")}
	if err := os.WriteFile(h.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	h.launch(t)
	return h
}

// launch starts the process. With arguments it takes over from another one.
func (h *haproxy) launch(t *testing.T, args ...string) {
	t.Helper()
	h.Process = cluster.StartProcess(t, "haproxy", append([]string{"-db", "-q", "-f", h.config}, args...)...)
	p := h.Process
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s says:\n%s", h.url, p.Log.Tail(30))
		}
		// It would wait for its clients.
		if err := p.Signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	addr := strings.Trim(strings.TrimPrefix(h.url, "http://"), "/")
	if err := cluster.AwaitListening(t.Context(), addr); err != nil {
		t.Fatalf("%v\n%s", err, p.Log.Tail(30))
	}
}

// fleet is as many HAProxys as gateways, each of which asks its own gateway
// first.
func fleet(t *testing.T, c *cluster.Cluster, o options) []*haproxy {
	t.Helper()
	cluster.Need(t, "haproxy", "haproxy")
	var all []*haproxy
	for i := range c.Gateways {
		o.admins = nil
		for j := range c.Gateways {
			o.admins = append(o.admins, c.Gateways[(i+j)%len(c.Gateways)].Admin)
		}
		all = append(all, start(t, o))
	}
	return all
}

// whole fails the test unless nothing is left behind: nobody waits, and all slots
// are free, long before anything could have expired.
func whole(t *testing.T, c *cluster.Cluster, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := c.AwaitWhole(ctx); err != nil {
		t.Errorf("something is left behind: %v", err)
	}
}

// newClient returns a client with connections of its own.
func newClient(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}
