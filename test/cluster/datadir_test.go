package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
)

// TestMisuse has gateways whose name is taken, and data directories that cannot
// be used. Each says what is wrong; the cluster goes on.
func TestMisuse(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	_, url := ServeUpstream(t, &demo.Upstream{})
	c := Start(t, Options{Gateways: 2, K: 2, Upstream: url})
	c.Causes("a gateway of another cluster is not let in", "the gateway cannot go on")
	joins := c.joins()
	t.Run("name", func(t *testing.T) {
		twin := c.LaunchStranger(t, c.Gateways[0].Name, func(*Options) {})
		expectOutside(t, c, twin)
		expectReason(t, twin, "name is in use")
	})
	t.Run("another cluster", func(t *testing.T) {
		dir := pastOf(t, url, "alien")
		alien := &Cluster{opt: c.opt, dir: dir, Gateways: c.Gateways}
		alien.opt.Durable = true
		g := alien.start(t, "alien-1", 1) // it goes on as the cluster that it was
		for _, side := range [][]*Gateway{c.Gateways, {g}} {
			expectWarning(t, side, "a gateway of another cluster is not let in", "data directory")
		}
	})
	t.Run("newer", func(t *testing.T) {
		dir := pastOf(t, url, "newer")
		writeFormat(t, filepath.Join(dir, "newer-1"), 99)
		expectNoStart(t, dir, "newer-1", joins, "newer", "99")
	})
	t.Run("another gateway's", func(t *testing.T) {
		dir := pastOf(t, url, "former")
		if err := os.Rename(filepath.Join(dir, "former-1"), filepath.Join(dir, "gw-9")); err != nil {
			t.Fatal(err)
		}
		expectNoStart(t, dir, "gw-9", joins, "former-1", "data directory of its own")
	})
	t.Run("damaged", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "gw-9"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "gw-9", "kgate.db"), []byte(strings.Repeat("nonsense ", 5000)), 0o600); err != nil {
			t.Fatal(err)
		}
		expectNoStart(t, dir, "gw-9", joins, "not a file of kgate", "move the directory away")
	})
	t.Run("read-only", func(t *testing.T) {
		dir := t.TempDir()
		d := mountDisk(t, filepath.Join(dir, "gw-9"), 1<<20)
		d.readOnly(t)
		expectNoStart(t, dir, "gw-9", joins, "read-only", "able to write")
	})
	t.Run("full", func(t *testing.T) {
		dir := t.TempDir()
		d := mountDisk(t, filepath.Join(dir, "gw-9"), 64<<10)
		d.fill(t)
		expectNoStart(t, dir, "gw-9", joins, "disk is full")
	})
	freshAtRoot(t, c)
}

// pastOf returns a directory with the state of a cluster of one that has ended.
func pastOf(t *testing.T, url, name string) (dir string) {
	t.Helper()
	c := Start(t, Options{Gateways: 1, Name: name, K: 2, Upstream: url, Durable: true})
	if err := c.Gateways[0].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Gateways[0].Wait(patience); err != nil {
		t.Fatal(err)
	}
	return c.dir
}

// expectReason waits until a gateway that is not ready says why.
func expectReason(t *testing.T, g *Gateway, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := Await(ctx, func() error {
		s, err := g.Status(ctx)
		if err != nil {
			return err
		}
		for _, w := range words {
			if !strings.Contains(s.Gateway.Reason, w) {
				return fmt.Errorf("%q is not in: %s", w, s.Gateway.Reason)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// expectWarning waits until one of the gateways, their leader, logs a message
// with that word in its hint.
func expectWarning(t *testing.T, gateways []*Gateway, message, word string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := Await(ctx, func() error {
		for _, g := range gateways {
			for _, r := range g.Log.Records(message) {
				if strings.Contains(r.Text("hint"), word) {
					return nil
				}
			}
		}
		return fmt.Errorf("no gateway logs %q with a hint at %q", message, word)
	})
	if err != nil {
		t.Error(err)
	}
}

// expectNoStart has a gateway try to start, which ends it and is explained.
func expectNoStart(t *testing.T, dir, name string, joins []string, words ...string) {
	t.Helper()
	c := &Cluster{opt: Options{K: 2, Upstream: "http://127.0.0.1:9", Durable: true}.withDefaults(), dir: dir}
	file := filepath.Join(dir, name+".yaml")
	listen := [3]string{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"}
	if err := os.WriteFile(file, []byte(c.config(name, 1, listen, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, 1, append(words, dir), append([]string{"serve", "-c", file}, joins...)...)
}

// writeFormat has a data directory be of another format.
func writeFormat(t *testing.T, dir string, format byte) {
	t.Helper()
	file := filepath.Join(dir, "kgate.db")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[16] = format
	binary.LittleEndian.PutUint32(data[20:], crc32.Checksum(data[:20], crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// disk is a small file system of its own.
type disk struct{ dir string }

// mountDisk makes one, until the test ends. Where that is not allowed, the test
// is skipped; with CI=true it fails.
func mountDisk(t *testing.T, dir string, size int) disk {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := mount(dir, size); err != nil {
		miss := t.Skipf
		if os.Getenv("CI") == "true" && runtime.GOOS == "linux" {
			miss = t.Fatalf // what CI does not run is not tested
		}
		miss("needs to mount a file system (Linux, root): %v", err)
	}
	t.Cleanup(func() {
		if err := unmount(dir); err != nil {
			t.Error(err)
		}
	})
	return disk{dir}
}

func (d disk) readOnly(t *testing.T) {
	t.Helper()
	if err := remountReadOnly(d.dir); err != nil {
		t.Fatal(err)
	}
}

// fill writes until nothing goes in any more.
func (d disk) fill(t *testing.T) {
	t.Helper()
	f, err := os.Create(filepath.Join(d.dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return
		}
	}
}

// TestDiskFull has the disk of a running gateway fill up: the gateway says so and
// ends, and the others go on.
func TestDiskFull(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const k = 2
	u, url := ServeUpstream(t, &demo.Upstream{Hold: 50 * time.Millisecond})
	c := Start(t, Options{Gateways: 2, K: k, Upstream: url, Durable: true})
	c.Causes("the gateway cannot go on", "the disk of data_dir is nearly full")
	d := mountDisk(t, c.DataDir("gw-3"), 256<<10)
	g := c.Launch(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	d.fill(t)
	for n := 0; n < 51 && !g.ended(); n++ { // each is agreed, and written down, by all; a page of the file takes some
		setK(t, c.Gateways[0], PoolName, k+n%2)
	}
	code, err := g.Wait(patience)
	if err != nil || code != 1 || !strings.Contains(g.Log.Tail(20), "disk is full") {
		t.Errorf("exit code %d, %v; it should end and say that its disk is full:\n%s", code, err, g.Log.Tail(5))
	}
	setK(t, c.Gateways[0], PoolName, k)
	whole, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.AwaitWhole(whole); err != nil {
		t.Error(err)
	}
	c.Gateways = c.Gateways[:2]
	freshAtRoot(t, c)
	if most := u.Stats().Max; most > k+1 {
		t.Errorf("most in flight %d, k never was more than %d", most, k+1)
	}
}
