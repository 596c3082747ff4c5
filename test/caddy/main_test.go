package caddy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/test/cluster"
)

// patience is how long a single thing may take that does not depend on luck.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	code := cluster.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// caddy is a process and where it listens.
type caddy struct {
	*cluster.Process
	name, http, https, admin string
	file                     func(pool string) string // its Caddyfile
}

// url is where clients ask it.
func (c *caddy) url() string { return "http://" + c.http + "/" }

// fleet starts Caddys that share a pool in front of an upstream, and waits until each
// serves requests. They begin a cluster, or join the one at the addresses.
func fleet(t *testing.T, n int, pool, upstream string, join ...string) []*caddy {
	t.Helper()
	if !cluster.Soak() {
		t.Skip("compiles Caddy: set " + cluster.SoakVariable)
	}
	binary := cluster.Build(t, "../../contrib/caddy/cmd/caddy")
	dir := t.TempDir()
	t.Setenv("XDG_DATA_HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	options := ""
	if strings.HasPrefix(upstream, "https:") {
		options = "tls_insecure_skip_verify"
	}
	var all []*caddy
	var peers []string
	for range n {
		peers = append(peers, cluster.ReservePort(t))
	}
	for i := range n {
		others := ""
		switch {
		case len(join) > 0:
			others = "join " + strings.Join(join, " ")
		case n > 1:
			others = fmt.Sprintf("bootstrap_expect %d\n join %s", n, strings.Join(slices.Delete(slices.Clone(peers), i, i+1), " "))
		}
		c := &caddy{
			name: fmt.Sprintf("caddy-%d", i+1), http: cluster.ReservePort(t), https: cluster.ReservePort(t), admin: cluster.ReservePort(t),
		}
		c.file = func(pool string) string {
			return fmt.Sprintf(`{
	admin %s
	auto_https disable_redirects
	skip_install_trust
	storage file_system %s
	default_sni localhost
	metrics
	kgate {
		name %s
		listen %s
		%s
		shutdown_timeout 20s
	}
}
(site) {
	bind 127.0.0.1
	kgate %s
	header >Test-Wait {http.kgate.wait_ms}
	reverse_proxy %s {
		transport kgate {
			%s
		}
	}
}
http://:%s {
	import site
}
https://localhost:%s {
	tls internal
	import site
}
`, c.admin, filepath.Join(dir, c.name+".data"), c.name, peers[i], others, pool, upstream, options, portOf(c.http), portOf(c.https))
		}
		config := filepath.Join(dir, c.name)
		if err := os.WriteFile(config, []byte(c.file(pool)), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Process = cluster.StartProcess(t, binary, "run", "--adapter", "caddyfile", "--config", config)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s says:\n%s", c.name, c.Log.Tail(40))
			}
		})
		all = append(all, c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, c := range all {
		err := cluster.Await(ctx, func() error { return c.ask(ctx) })
		if err == nil { // its certificate comes later than its first answer
			err = cluster.Await(ctx, c.handshake)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, c.Log.Tail(30))
		}
	}
	return all
}

// gatewaysOf returns what a Load asks.
func gatewaysOf(all []*caddy) (gateways []*cluster.Gateway) {
	for _, c := range all {
		gateways = append(gateways, &cluster.Gateway{Name: c.name, HTTP: c.http})
	}
	return gateways
}

// awaitWaiting returns when so many wait in line, and how long that took.
func (c *caddy) awaitWaiting(t *testing.T, n int) time.Duration {
	t.Helper()
	began := time.Now()
	want := fmt.Sprintf("kgate_waiting{gateway=%q,pool=\"pool\"} %d\n", c.name, n)
	for !strings.Contains(get(t, "http://"+c.admin+"/metrics"), want) {
		if time.Since(began) > patience {
			t.Fatalf("never %d waiting", n)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// ask sends one request and reports what is wrong with the answer.
func (c *caddy) ask(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(), http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s, %s", res.Status, res.Header)
	}
	return nil
}

// handshake reports whether it has a certificate.
func (c *caddy) handshake() error {
	conn, err := tls.Dial("tcp", c.https, &tls.Config{ServerName: "localhost", InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	return conn.Close()
}

// load gives a running Caddy another Caddyfile.
func (c *caddy) load(t *testing.T, pool string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.admin+"/load", strings.NewReader(c.file(pool)))
	if err != nil {
		return err
	}
	req.Close = true
	req.Header.Set("Content-Type", "text/caddyfile")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return err
}

// get returns what an address of the Caddy's own says.
func get(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
