package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
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
	"github.com/kgate/kgate/internal/socket"
	"github.com/kgate/kgate/telemetry"
)

// TestAdminSocket: a user who may open the socket may make changes without a token; a request over TCP
// on loopback needs the token if there is one.
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
		{[]string{"exec", "--admin", "http://" + tcp.adminAddr.String(), "--", "true"}, exitFailure, "--admin-token-file or KGATE_ADMIN_TOKEN_FILE"},
		{[]string{"status", "--admin", socket + ".not"}, exitFailure, "at " + socket + ".not"},
		{[]string{"status", "--admin", "unix:admin.sock"}, exitUsage, "begins with a slash"},
	} {
		var out, errs bytes.Buffer
		if code := run(c.args, streams{&out, &errs}); code != c.code || !strings.Contains(out.String()+errs.String(), c.says) {
			t.Errorf("%q: exit code %d, %s%s", c.args, code, out.String(), errs.String())
		}
	}
}

// TestAdminSocketBehindProxy: a proxy that names its client needs the token over the socket, too, and so
// does every client of a socket that all may open.
func TestAdminSocketBehindProxy(t *testing.T) {
	const secret = "s3cret-s3cret-s3cret"
	upstream, _, leave := stubborn(t)
	close(leave)
	dir := t.TempDir()
	token, path := filepath.Join(dir, "token"), filepath.Join(dir, "admin.sock")
	if err := os.WriteFile(token, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	startSingle(t, upstream.URL, func(c *config.Config) {
		c.Listen.Admin, c.Node.AdminTokenFile = "unix:"+path, token
	})
	to, err := socket.ParseURL("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	tr := socket.Transport()
	defer tr.CloseIdleConnections()
	for _, c := range []struct {
		header, value, token string
		want                 int
	}{
		{"", "", "", http.StatusOK},
		{"Via", "1.1 caddy", "", http.StatusUnauthorized},
		{"X-Forwarded-For", "192.0.2.1", "", http.StatusUnauthorized},
		{"X-Forwarded-For", "192.0.2.1", secret, http.StatusOK},
	} {
		r, err := http.NewRequest(http.MethodPost, to.String()+"/api/v1/pools/default", strings.NewReader(`{"k":3}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		res, err := (&http.Client{Transport: tr}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode != c.want {
			t.Errorf("%s: %s, token %q: %s, want %d", c.header, c.value, c.token, res.Status, c.want)
		}
	}
	l, err := socket.Listen(filepath.Join(dir, "open.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for mode, want := range map[os.FileMode]bool{0o660: false, 0o666: true} {
		if err := os.Chmod(filepath.Join(dir, "open.sock"), mode); err != nil || isOpen(l) != want {
			t.Errorf("%o: %v, %v", mode, isOpen(l), err)
		}
	}
}

// TestOperatorsAreBounded: idle connections to the admin address keep no client out, and their number is
// bounded.
func TestOperatorsAreBounded(t *testing.T) {
	const most = 8
	server, err := newOperators(operators{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}, most, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	for range 5 * most {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	res, err := client.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if n := server.Connections(); n > most || res.StatusCode != http.StatusOK {
		t.Errorf("%d connections, %s", n, res.Status)
	}
	client.CloseIdleConnections()
	if err := errors.Join(server.Close(), <-served); err != nil {
		t.Error(err)
	}
}

// TestReloadUnchanged: the reload of an unchanged file touches nothing: an upstream that is verified by a
// file of roots keeps its connections. With other roots the gateway connects again.
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
