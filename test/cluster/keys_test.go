package cluster

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/internal/demo"
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
	u, url := ServeUpstream(t, demo.UpstreamConfig{Hold: demo.Distribution{Mean: 5 * time.Millisecond}, K: k})
	old, next := clusterkey.New(), clusterkey.New()
	file := filepath.Join(t.TempDir(), "cluster.key")
	write := func(keys ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(old)
	c := Start(t, Options{K: k, Upstream: url, KeyFile: file})
	holder := holds(t, c.Gateways[0].Peer, old)
	stop := background(t, c, 30)
	const within = 10 * time.Second // the files are looked at every 5 s
	for step, keys := range [][]string{{old, next}, {next, old}, {next}} {
		write(keys...)
		for _, g := range c.Gateways {
			for deadline := time.Now().Add(within); len(g.Log.Records("keys and certificates for other gateways read again")) <= step; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%s has not read %d keys again within %v", g.Name, len(keys), within)
				}
			}
		}
	}
	_ = holder.SetReadDeadline(time.Now().Add(within))
	if _, err := holder.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a connection of the old key is still open: %v", err)
	}
	stale := filepath.Join(t.TempDir(), "stale.key")
	if err := os.WriteFile(stale, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	expectOutside(t, c, c.LaunchStranger(t, "stale", func(o *Options) { o.KeyFile = stale }))
	load := stop()
	if most := u.Stats().Max; load.Overall.Errors() > 0 || load.Overall.Access.Count == 0 || most != k {
		t.Errorf("%d answers, failed %v, most in flight %d, k is %d", load.Overall.Access.Count, load.Overall.Failed, most, k)
	}
	t.Logf("%d answers, none failed, while the key was replaced", load.Overall.Access.Count)
}

// holds opens a control stream to a peer port as a holder of the key.
func holds(t *testing.T, addr, key string) net.Conn {
	t.Helper()
	ring, err := clusterkey.Parse([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	config, err := ring.TLS("gw-9")
	if err != nil {
		t.Fatal(err)
	}
	config.InsecureSkipVerify = true // it is the gateway that checks here
	conn, err := tls.Dial("tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	opening := make([]byte, 8)
	if _, err := conn.Write([]byte("kgat\x04\x03\x00\x00")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(opening); err != nil || opening[5] != 1 {
		t.Fatalf("the control stream is refused: %q, %v", opening, err)
	}
	return conn
}
