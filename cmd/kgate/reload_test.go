package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/telemetry"
)

// TestFollowCertificate: with a reload the gateway shows the certificate of other
// files, and if one of them is no good nothing has changed.
func TestFollowCertificate(t *testing.T) {
	dir := t.TempDir()
	mustKeygen(t, dir, "--ca")
	mustKeygen(t, dir, "--peer", "old", "--peer", "new")
	upstream, _, _ := stubborn(t)
	files := func(name string) config.ClientTLS {
		return config.ClientTLS{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem")}
	}
	n := startSingle(t, upstream.URL, func(c *config.Config) { c.Listen.HTTPS, c.Listen.TLS = "127.0.0.1:0", files("old") })
	shows := func(name string) {
		t.Helper()
		pair, err := n.certificates.Get(nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := certificate(t, files(name).Cert); !bytes.Equal(pair.Certificate[0], want.Raw) {
			t.Errorf("it does not show the certificate of %s", name)
		}
	}
	next := *n.cfg
	next.Listen.TLS = files("new")
	if err := n.follow(&next); err != nil {
		t.Fatal(err)
	}
	shows("new")
	said := new(output)
	n.log = slog.New(slog.NewTextHandler(said, nil))
	if n.warnOfExpiry(time.Time{}, time.Now().AddDate(10, 0, 0)); !strings.Contains(said.String(), files("new").Cert) {
		t.Errorf("a warning names another file: %s", said)
	}
	next.Listen.TLS = config.ClientTLS{Cert: files("old").Cert, Key: files("new").Key}
	next.Routes = nil
	if err := n.follow(&next); err == nil {
		t.Error("followed, with a key that is not the certificate's")
	}
	shows("new")
	if n.node.Handler().Upstreams() == nil {
		t.Error("the routes were followed")
	}
}

// TestReloadLog: level and format of the log change, and without a file nothing
// does.
func TestReloadLog(t *testing.T) {
	upstream, _, _ := stubborn(t)
	n := startSingle(t, upstream.URL, nil)
	var out output
	log, settings, err := telemetry.NewLogger(&out, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kgate.yaml")
	text := strings.Replace(string(n.cfg.YAML()), "level: info\n  format: json", "level: debug\n  format: text", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if next, _ := new(serveCommand).reload(log, n, n.cfg, settings); next != n.cfg || !strings.Contains(out.String(), "there is no configuration file") {
		t.Errorf("without a file: %s", out.String())
	}
	if wrong := n.troubles(); len(wrong) > 0 {
		t.Errorf("without a file the status says %q", wrong)
	}
	next, _ := (&serveCommand{File: file}).reload(log, n, n.cfg, settings)
	if next.Log.Level != "debug" || !log.Enabled(t.Context(), slog.LevelDebug) {
		t.Errorf("the level is not debug: %s", out.String())
	}
	for _, want := range []string{`key=log.level old=info new=debug`, `key=log.format old=json new=text`, `msg=reloaded`, `changes=2`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

// TestReloadFails: a reload that fails changes nothing, the log's level included.
func TestReloadFails(t *testing.T) {
	upstream, _, _ := stubborn(t)
	n := startSingle(t, upstream.URL, nil)
	var out output
	log, settings, err := telemetry.NewLogger(&out, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	next := *n.cfg
	next.Log.Level = "debug"
	next.Pools = slices.Clone(next.Pools)
	next.Pools[0].Transport.TLS.CA = filepath.Join(dir, "ca.pem")
	file := filepath.Join(dir, "kgate.yaml")
	for name, content := range map[string]string{next.Pools[0].Transport.TLS.CA: "no certificate", file: string(next.YAML())} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if now, _ := (&serveCommand{File: file}).reload(log, n, n.cfg, settings); now != n.cfg || !strings.Contains(out.String(), "the old one stays") {
		t.Errorf("reloaded: %s", out.String())
	}
	if log.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("the level of the log has changed")
	}
}

// TestTroublesOfFiles: the status says that a reload failed, that a certificate ends, and that k is
// not the file's.
func TestTroublesOfFiles(t *testing.T) {
	dir := t.TempDir()
	mustKeygen(t, dir, "--ca")
	mustKeygen(t, dir, "--peer", "site", "--days", "5")
	upstream, _, _ := stubborn(t)
	n := startSingle(t, upstream.URL, func(c *config.Config) {
		c.Listen.HTTPS, c.Listen.TLS = "127.0.0.1:0", config.ClientTLS{Cert: filepath.Join(dir, "site.pem"), Key: filepath.Join(dir, "site-key.pem")}
	})
	says := func(want ...string) {
		t.Helper()
		var out, errs strings.Builder
		if code := run([]string{"status", "--admin", "http://" + n.adminAddr.String()}, streams{&out, &errs}); code != exitOK {
			t.Fatalf("exit %d: %s", code, errs.String())
		}
		var troubles []string
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "! ") {
				troubles = append(troubles, line)
			}
		}
		if len(troubles) != len(want) {
			t.Fatalf("%q, want %q", troubles, want)
		}
		for i, w := range want {
			if !strings.Contains(troubles[i], w) {
				t.Errorf("%q, want %q", troubles[i], w)
			}
		}
	}
	const ends = "gw-test: the certificate "
	says(ends)
	n.read.Store(&configRead{at: time.Now(), err: errors.New("kgate.yaml:3:5: pools[0].k: 0 is out of range")})
	says("gw-test: the configuration was not read again: kgate.yaml:3:5: pools[0].k: 0 is out of range; the old one stays.", ends)
	n.read.Store(&configRead{at: time.Now()})
	next := *n.cfg
	next.Pools = slices.Clone(next.Pools)
	next.Pools[0].K += 2
	if err := n.follow(&next); err != nil {
		t.Fatal(err)
	}
	says(ends, "gw-test: pool default has k 1, and the configuration here says 3")
}
