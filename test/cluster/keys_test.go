package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/internal/timing"
)

// TestKeyReplaced replaces the cluster's key under load as docs/keys.md says: no
// request fails, the cap holds, and 10 s after the old key is out nobody who has
// only that is connected.
func TestKeyReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const k = 3
	u, url := ServeUpstream(t, &demo.Upstream{Hold: 50 * time.Millisecond})
	old, next := clusterkey.New(), clusterkey.New()
	file := filepath.Join(t.TempDir(), "cluster.key")
	write := func(keys ...string) { replace(t, file, keys...) }
	write(old)
	c := Start(t, Options{K: k, Upstream: url, KeyFile: file})
	c.Causes("connection to a peer closed: its certificate is no longer good")
	ring, err := clusterkey.Parse([]byte(old))
	if err != nil {
		t.Fatal(err)
	}
	config, err := ring.TLS("gw-9")
	if err != nil {
		t.Fatal(err)
	}
	holder := holds(t, c.Gateways[0], "gw-9", config)
	stop := background(t, c, 30)
	for step, keys := range [][]string{{old, next}, {next, old}, {next}} {
		write(keys...)
		readAgain(t, c, step+1)
	}
	isClosed(t, holder)
	stale := filepath.Join(t.TempDir(), "stale.key")
	if err := os.WriteFile(stale, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	expectOutside(t, c, c.LaunchStranger(t, "stale", func(o *Options) { o.KeyFile = stale }))
	load := stop()
	if most := u.Stats().Max; load.Overall.Errors > 0 || load.Overall.Count == 0 || most != k {
		t.Errorf("%d answers, failed %v, most in flight %d, k is %d", load.Overall.Count, load.Overall.Failed, most, k)
	}
	t.Logf("%d answers, none failed, while the key was replaced", load.Overall.Count)
}

// soon is how long a gateway has to follow its files.
var soon = timing.Slack() * 10 * time.Second

// replace writes a file at once: a gateway that looks meanwhile says that half a file is none.
func replace(t *testing.T, path string, lines ...string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// readAgain waits until each gateway has read its keys and certificates again so many times.
func readAgain(t *testing.T, c *Cluster, times int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for _, g := range c.Gateways {
		if err := Await(ctx, func() error {
			if n := len(g.Log.Records("keys and certificates for other gateways read again")); n < times {
				return fmt.Errorf("%s has read them again %d times, not %d", g.Name, n, times)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// holds opens a connection to the peer port of a gateway, as the one of another name.
func holds(t *testing.T, to *Gateway, as string, config *tls.Config) net.Conn {
	t.Helper()
	config.InsecureSkipVerify = true // it is the gateway that checks here
	conn, err := tls.Dial("tcp", to.Peer, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write(hello(as, to.Name)); err != nil {
		t.Fatal(err)
	}
	opening := make([]byte, 8)
	if _, err := conn.Read(opening); err != nil || opening[5] != 1 {
		t.Fatalf("the connection is refused: %q, %v", opening, err)
	}
	return conn
}

func isClosed(t *testing.T, holder net.Conn) {
	t.Helper()
	_ = holder.SetReadDeadline(time.Now().Add(soon))
	if _, err := io.Copy(io.Discard, holder); os.IsTimeout(err) {
		t.Errorf("a connection of the old key is still open: %v", err)
	}
}

// TestCertificatesReplaced replaces everything else at the same time, as docs/keys.md says:
// the authority, the gateways' certificate, the admin token and the
// certificate for clients.
func TestCertificatesReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const k = 3
	u, url := ServeUpstream(t, &demo.Upstream{Hold: 50 * time.Millisecond})
	dir := t.TempDir()
	write := func(name string, parts ...string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		replace(t, path, parts...)
		return path
	}
	read := func(path string) string {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	old, next := NewTLSFiles(t), NewTLSFiles(t)
	oldToken, nextToken := rand.Text(), rand.Text()
	used := &TLSFiles{CA: write("ca.pem", read(old.CA)), Cert: write("cert.pem", read(old.Cert)), Key: write("key.pem", read(old.Key))}
	shown := &TLSFiles{Cert: write("client.pem", read(old.Cert)), Key: write("client-key.pem", read(old.Key))}
	c := Start(t, Options{
		K: k, Upstream: url, TLS: used, Tokens: write("token", oldToken), ClientTLS: shown,
	})
	c.Causes("connection to a peer closed: its certificate is no longer good")
	pair, err := tls.LoadX509KeyPair(old.Cert, old.Key)
	if err != nil {
		t.Fatal(err)
	}
	holder := holds(t, c.Gateways[0], "gw-5", &tls.Config{Certificates: []tls.Certificate{pair}})
	stop := background(t, c, 30)

	write("ca.pem", read(old.CA), read(next.CA))
	write("token", oldToken, nextToken)
	write("client.pem", read(next.Cert))
	write("client-key.pem", read(next.Key))
	readAgain(t, c, 1)
	write("cert.pem", read(next.Cert))
	write("key.pem", read(next.Key))
	readAgain(t, c, 2)
	write("ca.pem", read(next.CA))
	write("token", nextToken)
	readAgain(t, c, 3)

	isClosed(t, holder)
	expectOutside(t, c, c.LaunchStranger(t, "foreign", func(o *Options) { o.TLS = old }))
	for _, g := range c.Gateways {
		asks(t, g, nextToken, http.StatusOK)
		asks(t, g, oldToken, http.StatusUnauthorized)
		conn, err := tls.Dial("tcp", g.HTTPS, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(conn.ConnectionState().PeerCertificates[0].Raw, certificateIn(t, next.Cert)) {
			t.Errorf("%s shows clients the old certificate", g.Name)
		}
		_ = conn.Close()
	}
	load := stop()
	if most := u.Stats().Max; load.Overall.Errors > 0 || load.Overall.Count == 0 || most != k {
		t.Errorf("%d answers, failed %v, most in flight %d, k is %d", load.Overall.Count, load.Overall.Failed, most, k)
	}
	t.Logf("%d answers, none failed, while everything was replaced", load.Overall.Count)
}

// certificateIn returns the first certificate of a PEM file.
func certificateIn(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	return block.Bytes
}

// asks waits until a gateway answers a change that is asked for with a token as it is to.
func asks(t *testing.T, g *Gateway, token string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := Await(ctx, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.Admin+"/api/v1/pools/"+PoolName, strings.NewReader(`{"k": 3, "was": 3}`))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		res, err := g.client.Do(req)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode != status {
			return fmt.Errorf("%s answers %s, not %d", g.Name, res.Status, status)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
