package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/telemetry"
)

// TestAdminSocket: who may open the socket may change things, with no token; a
// request that comes over TCP on loopback needs it where there is one.
func TestAdminSocket(t *testing.T) {
	upstream, _, leave := stubborn(t)
	close(leave)
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("s3cret-s3cret-s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := "unix:" + filepath.Join(dir, "admin.sock")
	startSingle(t, upstream.URL, func(c *config.Config) {
		c.Listen.Admin, c.Node.AdminTokenFile = socket, token
	})
	tcp := startSingle(t, upstream.URL, func(c *config.Config) { c.Node.AdminTokenFile = token })
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"status", "--admin", socket}, exitOK, "gw-test"},
		{[]string{"pool", "set", "default", "--k", "3", "--admin", socket}, exitOK, "k 1 -> 3"},
		{[]string{"exec", "--admin", socket, "--", "true"}, exitOK, ""},
		{[]string{"pool", "set", "default", "--k", "3", "--admin", "http://" + tcp.adminAddr.String()}, exitFailure, "admin token"},
		{[]string{"pool", "set", "default", "--k", "3", "--admin", "http://" + tcp.adminAddr.String(), "--admin-token-file", token}, exitOK, "k 1 -> 3"},
		{[]string{"status", "--admin", socket + ".not"}, exitFailure, "at " + socket + ".not"},
		{[]string{"status", "--admin", "unix:admin.sock"}, exitUsage, "begins with a slash"},
	} {
		var out, errs bytes.Buffer
		if code := run(c.args, streams{&out, &errs}); code != c.code || !strings.Contains(out.String()+errs.String(), c.says) {
			t.Errorf("%q: exit code %d, %s%s", c.args, code, out.String(), errs.String())
		}
	}
}

// TestReloadUnchanged: a file that says the same touches nothing: an upstream that is
// believed by a file of roots keeps its connections. With other roots it is reached
// anew.
func TestReloadUnchanged(t *testing.T) {
	var conns atomic.Int64
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	upstream.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: upstream.Certificate().Raw})
	if err := os.WriteFile(ca, root, 0o600); err != nil {
		t.Fatal(err)
	}
	n := startSingle(t, upstream.URL, func(c *config.Config) { c.Pools[0].Transport.TLS.CA = ca })
	file := filepath.Join(t.TempDir(), "kgate.yaml")
	if err := os.WriteFile(file, n.cfg.YAML(), 0o600); err != nil {
		t.Fatal(err)
	}
	log, settings, err := telemetry.NewLogger(io.Discard, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{1, 1, 2} {
		if i > 0 {
			(&serveCommand{File: file}).reload(log, n, n.cfg, settings)
		}
		res, err := http.Get("http://" + n.clientAddr.String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if got := conns.Load(); res.StatusCode != 200 || got != want {
			t.Errorf("round %d: %s over %d connections, want %d", i, res.Status, got, want)
		}
		if i == 1 { // one root more
			authority, err := newAuthority(time.Now(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			other := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.cert.Raw})
			if err := os.WriteFile(ca, append(root, other...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
