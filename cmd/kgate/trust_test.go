package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// filesOf names a gateway's files in a folder that keygen has filled.
func filesOf(dir, name string) config.PeerTLS {
	return config.PeerTLS{
		CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem"),
	}
}

// expired issues a certificate that was valid once.
func expired(t *testing.T, dir, name string) {
	t.Helper()
	a, err := readAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := a.issue(name, time.Now().AddDate(0, 0, -2), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeKeyFiles(dir, files); err != nil {
		t.Fatal(err)
	}
}

// greet opens a connection as a gateway with these files would, and returns the
// other end's certificate, or why it does not talk.
func greet(addr string, files config.PeerTLS) (*tls.ConnectionState, error) {
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, err
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", addr, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// An unknown stream is refused with a status: the certificate was accepted. In TLS 1.3 a
	// refused certificate shows at the first byte.
	if _, err := conn.Write([]byte("kgat\x01\xff\x00\x00")); err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return nil, err
	}
	state := conn.ConnectionState()
	return &state, nil
}

// TestGeneratedSet has three gateways with what keygen makes form a cluster, which
// takes neither a certificate of another authority nor an old one.
func TestGeneratedSet(t *testing.T) {
	dir, foreign := t.TempDir(), t.TempDir()
	mustKeygen(t, dir, "--ca", "--token", "--peer", "gw-1", "--peer", "gw-2", "--peer", "gw-3")
	mustKeygen(t, foreign, "--ca", "--peer", "gw-1")
	expired(t, dir, "old")
	upstream := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(upstream.Close)
	at, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	var fleet []*server
	for _, name := range []string{"gw-1", "gw-2", "gw-3"} {
		cfg := config.Default()
		cfg.Node.Name, cfg.Node.AdminTokenFile = name, filepath.Join(dir, "admin.token")
		onLoopback(&cfg.Listen)
		cfg.Cluster.BootstrapExpect, cfg.Cluster.TLS = 3, filesOf(dir, name)
		if len(fleet) > 0 {
			cfg.Cluster.Join = []string{fleet[0].node.PeerAddr()}
		}
		pool := config.DefaultPool()
		pool.Name, pool.K, pool.Upstreams = "default", 1, []*url.URL{at}
		cfg.Pools, cfg.Routes = []config.Pool{pool}, []config.Route{{Pool: pool.Name}}
		if err := errors.Join(cfg.Validate(), cfg.Resolve()); err != nil {
			t.Fatal(err)
		}
		n, err := startServer(cfg, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.close(); err != nil {
				t.Error(err)
			}
		})
		fleet = append(fleet, n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, n := range fleet {
		if err := n.node.Ready(ctx); err != nil {
			t.Fatal(err)
		}
	}
	peer := fleet[0].node.PeerAddr()
	if _, err := greet(peer, filesOf(dir, "gw-2")); err != nil {
		t.Errorf("a gateway's certificate is refused: %v", err)
	}
	for name, files := range map[string]config.PeerTLS{"another authority's": filesOf(foreign, "gw-1"), "an expired": filesOf(dir, "old")} {
		if _, err := greet(peer, files); err == nil {
			t.Errorf("%s certificate is taken", name)
		} else {
			t.Logf("%s certificate: %v", name, err)
		}
	}
}

// A gateway does not start with a certificate that no peer would take.
func TestUnusablePeerTLS(t *testing.T) {
	dir, foreign := t.TempDir(), t.TempDir()
	mustKeygen(t, dir, "--ca", "--peer", "gw-1", "--peer", "gw-2")
	mustKeygen(t, foreign, "--ca")
	expired(t, dir, "old")
	mixed, otherCA, none := filesOf(dir, "gw-1"), filesOf(dir, "gw-1"), filesOf(dir, "gw-1")
	mixed.Key = filepath.Join(dir, "gw-2-key.pem")
	otherCA.CA = filepath.Join(foreign, "ca.pem")
	none.CA = mixed.Key
	for says, files := range map[string]config.PeerTLS{
		"":                                 filesOf(dir, "gw-1"),
		"it is for gw-2, not for gw-1":     filesOf(dir, "gw-2"),
		"no such file":                     filesOf(dir, "gw-3"),
		"expired":                          filesOf(dir, "old"),
		"private key does not match":       mixed,
		"unknown authority":                otherCA,
		"holds no certificate in PEM form": none,
	} {
		_, err := readTrust(config.Cluster{TLS: files}, "gw-1")
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

type deaf struct{}

func (deaf) Deliver(kmutex.Node, string, kmutex.Message) error { return nil }

// linksWith returns a server of which only the peer port is there, and its address.
func linksWith(t *testing.T, files config.PeerTLS, log *slog.Logger) (*server, string) {
	t.Helper()
	n := &server{log: log, cfg: config.Default()}
	var err error
	if n.trust, err = readTrust(config.Cluster{TLS: files}, "gw-1"); err != nil {
		t.Fatal(err)
	}
	links, err := transport.Listen(transport.Config{Name: "stranger", Listen: "127.0.0.1:0", Handler: deaf{}, TLS: n.trust.secure})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := links.Close(); err != nil {
			t.Error(err)
		}
	})
	n.setPeerTLS = links.SetTLS
	return n, links.Addr().String()
}

// A new certificate is used without a restart. An unusable new certificate leaves the old one in place,
// and is logged once.
func TestPeerCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	mustKeygen(t, dir, "--ca", "--peer", "gw-1", "--peer", "other")
	files, said := filesOf(dir, "gw-1"), new(output)
	n, addr := linksWith(t, files, slog.New(slog.NewTextHandler(said, nil)))
	shows := func() string {
		t.Helper()
		state, err := greet(addr, filesOf(dir, "other"))
		if err != nil {
			t.Fatal(err)
		}
		return state.PeerCertificates[0].SerialNumber.String()
	}
	first := shows()

	if err := os.WriteFile(files.Key, []byte("half a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.refreshTrust()
	n.refreshTrust()
	if got := shows(); got != first {
		t.Error("a key that cannot be used changes the certificate")
	}
	if lines := strings.Count(said.String(), "cannot be used"); lines != 1 {
		t.Errorf("told %d times: %s", lines, said)
	}

	for _, f := range []string{files.Cert, files.Key} {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	mustKeygen(t, dir, "--peer", "gw-1")
	n.refreshTrust()
	if got := shows(); got != first {
		t.Error("files that may still be written are in use")
	}
	n.refreshTrust()
	if got, want := shows(), certificate(t, files.Cert).SerialNumber.String(); got != want || got == first {
		t.Errorf("shows certificate %s, want %s, not %s; log %s", got, want, first, said)
	}

	n.trust.failed = true // as with a certificate that was not valid yet
	n.refreshTrust()
	n.refreshTrust()
	if again := strings.Count(said.String(), "read again"); n.trust.failed || again != 2 {
		t.Errorf("files that could not be used are not tried again: read %d times: %s", again, said)
	}
}

func TestWarnsOfExpiry(t *testing.T) {
	dir, said := t.TempDir(), new(output)
	mustKeygen(t, dir, "--ca", "--peer", "gw-1", "--days", "40")
	n, _ := linksWith(t, filesOf(dir, "gw-1"), slog.New(slog.NewTextHandler(said, nil)))
	if n.warnOfExpiry(time.Time{}, time.Now()) || said.String() != "" {
		t.Errorf("told 40 days ahead: %s", said)
	}
	if !n.warnOfExpiry(time.Time{}, time.Now().AddDate(0, 0, 11)) || !strings.Contains(said.String(), "days_left=28") || !strings.Contains(said.String(), "gw-1.pem") {
		t.Errorf("not told 29 days ahead: %s", said)
	}
	before, after := n.trust.expires.Add(-time.Minute), n.trust.expires.Add(time.Minute)
	if n.warnOfExpiry(before.Add(-time.Minute), before) || !n.warnOfExpiry(before, after) || n.warnOfExpiry(after, after.Add(time.Minute)) ||
		strings.Count(said.String(), "has expired") != 1 {
		t.Errorf("the end is not told once: %s", said)
	}
}

func TestWarnsOfOpenSecrets(t *testing.T) {
	dir, said := t.TempDir(), new(output)
	mustKeygen(t, dir, "--ca", "--token", "--peer", "gw-1")
	n := &server{log: slog.New(slog.NewTextHandler(said, nil)), cfg: config.Default()}
	n.cfg.Node.AdminTokenFile = filepath.Join(dir, "admin.token")
	n.cfg.Cluster.TLS = filesOf(dir, "gw-1")
	for _, tt := range []struct {
		file string
		mode os.FileMode
		told bool
	}{
		{n.cfg.Node.AdminTokenFile, 0o600, false},
		{n.cfg.Node.AdminTokenFile, 0o440, false},
		{n.cfg.Node.AdminTokenFile, 0o644, true},
		{n.cfg.Cluster.TLS.Key, 0o660, true},
		{n.cfg.Cluster.TLS.Key, 0o604, true},
		{n.cfg.Cluster.TLS.Cert, 0o644, false},
	} {
		if err := os.Chmod(tt.file, tt.mode); err != nil {
			t.Fatal(err)
		}
		before := len(said.String())
		n.warnOfOpenSecrets()
		if told := strings.Contains(said.String()[before:], tt.file); told != tt.told {
			t.Errorf("%s with %04o: told %v, want %v", tt.file, tt.mode, told, tt.told)
		}
		if err := os.Chmod(tt.file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
