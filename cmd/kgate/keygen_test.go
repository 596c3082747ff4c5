package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/internal/config"
)

// keygen runs the command in a folder.
func keygen(t *testing.T, dir string, args ...string) (out, err string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(append([]string{"keygen", "--dir", dir}, args...), streams{&stdout, &stderr})
	return stdout.String(), stderr.String(), code
}

// mustKeygen runs it and fails the test if nothing is made.
func mustKeygen(t *testing.T, dir string, args ...string) {
	t.Helper()
	if _, err, code := keygen(t, dir, args...); code != exitOK {
		t.Fatalf("keygen %v: exit %d: %s", args, code, err)
	}
}

func certificate(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestKeygenPrintsAClusterKey(t *testing.T) {
	out, _, code := keygen(t, t.TempDir())
	if _, err := clusterkey.Parse([]byte(out)); err != nil || code != exitOK || strings.Count(out, "\n") != 1 {
		t.Errorf("exit %d, %q: %v", code, out, err)
	}
}

// TestKeygenOut: the file is the owner's alone, and is never written over.
func TestKeygenOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster.key")
	for i, want := range []int{exitOK, exitFailure} {
		if said, err, code := keygen(t, ".", "--out", file); code != want || i == 0 && said != file+"\n" {
			t.Errorf("exit %d, want %d: %s%s", code, want, said, err)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if _, err := readTrust(config.Cluster{KeyFile: file}, "gw-1"); err != nil {
		t.Error(err)
	}
	if _, _, code := keygen(t, ".", "--out", file+"2", "--token"); code != exitUsage {
		t.Errorf("--out beside others: exit %d", code)
	}
}

func TestKeygenMakesASet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	mustKeygen(t, dir, "--ca", "--token")
	mustKeygen(t, dir, "--peer", "gw-1", "--peer", "gw-2", "--days", "90")
	for _, f := range []struct {
		name string
		mode os.FileMode
	}{
		{"", 0o700},
		{"ca.pem", 0o644},
		{"ca-key.pem", 0o600},
		{"admin.token", 0o600},
		{"gw-1.pem", 0o644},
		{"gw-1-key.pem", 0o600},
		{"gw-2.pem", 0o644},
		{"gw-2-key.pem", 0o600},
	} {
		info, err := os.Stat(filepath.Join(dir, f.name))
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != f.mode {
			t.Errorf("%s has mode %04o, want %04o", f.name, info.Mode().Perm(), f.mode)
		}
	}
	ca, gw := certificate(t, filepath.Join(dir, "ca.pem")), certificate(t, filepath.Join(dir, "gw-1.pem"))
	if days := time.Until(gw.NotAfter).Hours() / 24; days < 89 || days > 90 {
		t.Errorf("the certificate is valid for %.1f days, want 90", days)
	}
	if !ca.IsCA || !ca.MaxPathLenZero || gw.IsCA || gw.DNSNames[0] != "gw-1" {
		t.Errorf("authority %v, with others below it %v; the gateway's: authority %v, names %v", ca.IsCA, !ca.MaxPathLenZero, gw.IsCA, gw.DNSNames)
	}
	if tokens, err := readTokens(t.Context(), filepath.Join(dir, "admin.token")); err != nil || len(tokens) != 1 || len(tokens[0]) != len(tokenPrefix)+64+8 {
		t.Errorf("%d tokens: %v", len(tokens), err)
	}
}

// If a file exists, no file is written.
func TestKeygenWritesNothingOver(t *testing.T) {
	dir := t.TempDir()
	mustKeygen(t, dir, "--ca")
	before, err := os.ReadFile(filepath.Join(dir, "ca-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	_, says, code := keygen(t, dir, "--token", "--ca")
	after, _ := os.ReadFile(filepath.Join(dir, "ca-key.pem"))
	if code != exitFailure || !strings.Contains(says, "ca-key.pem") || !bytes.Equal(before, after) {
		t.Errorf("exit %d, %s; the key has changed: %v", code, says, !bytes.Equal(before, after))
	}
	if _, err := os.Stat(filepath.Join(dir, "admin.token")); err == nil {
		t.Error("half of the files are written")
	}
}

func TestKeygenRefuses(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--peer", "gw-1"}, exitFailure, "make one with --ca"},
		{[]string{"--ca", "--peer", "../gw"}, exitUsage, "not the name of a gateway"},
		{[]string{"--ca", "--peer", "ca"}, exitUsage, "not the name of a gateway"},
		{[]string{"--ca", "--days=-1"}, exitUsage, "a number of days"},
		{[]string{"--ca", "--days", "200000"}, exitUsage, "a number of days"},
	} {
		dir := t.TempDir()
		_, says, code := keygen(t, dir, tt.args...)
		files, _ := os.ReadDir(dir)
		if code != tt.code || !strings.Contains(says, tt.says) || len(files) > 0 {
			t.Errorf("%v: exit %d, want %d: %s; files %v", tt.args, code, tt.code, says, files)
		}
	}
}

// A certificate outlives its authority by no day: peers would refuse it anyway.
func TestCertificateEndsWithItsAuthority(t *testing.T) {
	dir := t.TempDir()
	mustKeygen(t, dir, "--ca", "--days", "10")
	mustKeygen(t, dir, "--peer", "gw-1")
	ca, gw := certificate(t, filepath.Join(dir, "ca.pem")), certificate(t, filepath.Join(dir, "gw-1.pem"))
	if !gw.NotAfter.Equal(ca.NotAfter) {
		t.Errorf("the certificate ends %v, its authority %v", gw.NotAfter, ca.NotAfter)
	}
	a, err := readAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.issue("gw-2", time.Now().AddDate(0, 0, 11), time.Hour); err == nil {
		t.Error("an authority that has expired issues certificates")
	}
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(string) error{
		"node.admin_token_file": func(f string) error { _, err := readTokens(t.Context(), f); return err },
		"cluster.key_file":      func(f string) error { _, err := readTrust(config.Cluster{KeyFile: f}, "gw-1"); return err },
	} {
		for file, words := range map[string][]string{bad: {bad, "kgate keygen"}, filepath.Join(dir, "none"): {"no such file"}} {
			err := read(file)
			if err == nil || !strings.HasPrefix(err.Error(), name) || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(err.Error(), w) }) {
				t.Errorf("%s of %s: %v", name, file, err)
			}
			if err != nil && strings.Contains(err.Error(), "short") {
				t.Errorf("the error shows the secret: %v", err)
			}
		}
	}
}

// TestHalfATokenIsNone: a process that reads the file while it is written, or after its writer was
// killed, must not accept a part of a token.
func TestHalfATokenIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "admin.token")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	whole := newToken()
	for n := 1; n < len(whole); n++ {
		put(whole[:n])
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		if tokens, err := readTokens(t.Context(), file); err == nil || strings.Contains(err.Error(), whole[:n]) && n > len(tokenPrefix) {
			t.Fatalf("of %d characters the first %d: %v, %v", len(whole), n, tokens, err)
		}
	}
	// A token that kgate has not made is whole when the file has not changed for a while.
	foreign := strings.Repeat("0123456789", 4)
	put(foreign[:16])
	go func() {
		time.Sleep(settleTime / 4)
		_ = os.WriteFile(file, []byte(foreign), 0o600)
	}()
	if tokens, err := readTokens(t.Context(), file); err != nil || len(tokens) != 1 || tokens[0] != foreign {
		t.Errorf("read %q while it was written: %v", tokens, err)
	}
	// The clock of this machine may be behind.
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if tokens, err := readTokens(t.Context(), file); err != nil || len(tokens) != 1 {
		t.Errorf("read %q, of a file from the future: %v", tokens, err)
	}
}

// TestHalfATokenEnds: waiting for the rest of a file stops when the context ends.
func TestHalfATokenEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readTokens(ctx, file); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
