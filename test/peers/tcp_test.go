package peers

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

// tcpK is the k of the pools for TCP.
const tcpK = 6

// judged returns the address of a judge in front of a server: connections of its own pass
// through, and are counted.
func judged(t *testing.T, server string) (j *cluster.Judge, addr string) {
	t.Helper()
	return cluster.NewTCPJudge(t, func(c *net.TCPConn) {
		s, err := net.Dial("tcp", server)
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		up := make(chan struct{})
		go func() {
			defer close(up)
			_, _ = io.Copy(s, c)
			_ = s.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(c, s)
		_ = c.CloseRead() // the server has ended
		<-up
	})
}

// TestTCPPeers has real clients of other protocols reach real servers through three
// gateways.
func TestTCPPeers(t *testing.T) {
	rsync, redis := cluster.ReservePort(t), cluster.ReservePort(t)
	rsyncJudge, rsyncAddr := judged(t, rsync)
	redisJudge, redisAddr := judged(t, redis)
	c := cluster.Start(t, cluster.Options{K: 1, Upstream: "http://127.0.0.1:9", Name: "tcp", Pools: []cluster.Pool{
		{Name: "rsync", K: tcpK, Upstream: "tcp://" + rsyncAddr}, {Name: "redis", K: tcpK, Upstream: "tcp://" + redisAddr},
	}})
	t.Run("Rsync", func(t *testing.T) { testRsync(t, c, rsync); expectMost(t, rsyncJudge) })
	t.Run("Redis", func(t *testing.T) { testRedis(t, c, redis); expectMost(t, redisJudge) })
}

// expectMost: all k slots were in use, and no more.
func expectMost(t *testing.T, j *cluster.Judge) {
	t.Helper()
	if t.Skipped() {
		return
	}
	_, most, total := j.Counts()
	t.Logf("%d connections, at most %d at once, k is %d", total, most, tcpK)
	if most != tcpK {
		t.Errorf("at most %d connections at once, k is %d", most, tcpK)
	}
}

// testRsync has 30 clients fetch a file from a daemon, and 30 send one.
func testRsync(t *testing.T, c *cluster.Cluster, addr string) {
	cluster.Need(t, "rsync", "rsync")
	dir := t.TempDir()
	source, sink := filepath.Join(dir, "source"), filepath.Join(dir, "sink")
	for _, d := range []string{source, sink} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(source, "file"), pattern, 0o600); err != nil {
		t.Fatal(err)
	}
	uid := fmt.Sprintf("uid = %d\ngid = %d\n", os.Getuid(), os.Getgid())
	config := writeFile(t, "rsyncd.conf", uid+"use chroot = no\n[source]\npath = "+source+"\n[sink]\npath = "+sink+"\nread only = no\n")
	host, port, _ := net.SplitHostPort(addr)
	cluster.StartProcess(t, "rsync", "--daemon", "--no-detach", "--address="+host, "--port="+port, "--config="+config)
	if err := cluster.AwaitListening(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			url := "rsync://" + c.TCP(c.Gateways[i%3].Name, "rsync")
			got := filepath.Join(dir, fmt.Sprint("got", i))
			if i%2 == 0 {
				run(t, "rsync", url+"/source/file", got)
			} else {
				got = filepath.Join(sink, fmt.Sprint("sent", i))
				run(t, "rsync", filepath.Join(source, "file"), url+"/sink/"+filepath.Base(got))
			}
			if data, err := os.ReadFile(got); err != nil || !bytes.Equal(data, pattern) {
				t.Errorf("client %d: %d bytes, %v", i, len(data), err)
			}
		})
	}
	wg.Wait()
}

// testRedis has clients count in a Redis: they speak first, and wait for the answer.
func testRedis(t *testing.T, c *cluster.Cluster, addr string) {
	cluster.Need(t, "redis-server", "redis-server")
	host, port, _ := net.SplitHostPort(addr)
	cluster.StartProcess(t, "redis-server", "--bind", host, "--port", port, "--save", "", "--dir", t.TempDir())
	if err := cluster.AwaitListening(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	const clients = 90
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			_, port, _ := net.SplitHostPort(c.TCP(c.Gateways[i%3].Name, "redis"))
			// The pause keeps the slot while others wait.
			cmd := exec.CommandContext(t.Context(), "redis-cli", "-p", port)
			cmd.Stdin = strings.NewReader("INCR n\nBLPOP nothing 0.05\n")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("redis-cli: %v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	if got := strings.TrimSpace(run(t, "redis-cli", "-p", port, "GET", "n")); got != fmt.Sprint(clients) {
		t.Errorf("n is %s after %d clients", got, clients)
	}
}
