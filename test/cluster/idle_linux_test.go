package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
)

// BenchmarkIdle reports what gateways without requests cost, with mutual TLS and data_dir:
// what part of a core all of them use together, how many connections they open to each other
// in a second, and how often the kernel switches between threads for one of them in a
// second, and for the leader. One iteration is 10 s: use -benchtime 1x.
func BenchmarkIdle(b *testing.B) {
	for _, size := range []int{5, 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			key, err := exec.Command(Binary(b), "keygen").Output()
			if err != nil {
				b.Fatal(err)
			}
			file := filepath.Join(b.TempDir(), "key")
			if err := os.WriteFile(file, key, 0o600); err != nil {
				b.Fatal(err)
			}
			_, url := ServeUpstream(b, &demo.Upstream{})
			c := Start(b, Options{Gateways: size, K: 10, Upstream: url, Durable: true, KeyFile: file, Lease: 3 * time.Second})
			time.Sleep(5 * time.Second) // what joining has begun is over
			s, err := c.Gateways[0].Status(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			before, open, began := processorTime(b, c), connections(b, c), time.Now()
			switched := make([]int, size)
			for i, g := range c.Gateways {
				switched[i] = switches(b, g)
			}
			for b.Loop() {
				time.Sleep(10 * time.Second)
			}
			used := processorTime(b, c) - before
			opened := 0.0
			for pair := range connections(b, c) {
				if !open[pair] {
					opened++
				}
			}
			took := time.Since(began).Seconds()
			b.ReportMetric(100*used.Seconds()/took, "%core")
			b.ReportMetric(opened/took, "conns/s")
			all := 0
			for i, g := range c.Gateways {
				n := switches(b, g) - switched[i]
				if all += n; g.Name == s.Cluster.Leader {
					b.ReportMetric(float64(n)/took, "leader-switches/s")
				}
			}
			b.ReportMetric(float64(all)/float64(size)/took, "switches/s")
		})
	}
}

// connections returns the TCP connections between gateways, by their two ends. The kernel keeps closed ones for a minute.
func connections(b *testing.B, c *Cluster) map[[2]string]bool {
	b.Helper()
	ports := make(map[string]bool)
	for _, g := range c.Gateways {
		_, port, err := net.SplitHostPort(g.Peer)
		n, err2 := strconv.Atoi(port)
		if err := errors.Join(err, err2); err != nil {
			b.Fatal(err)
		}
		ports[fmt.Sprintf("%04X", n)] = true
	}
	all := make(map[[2]string]bool)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) < 4 || !strings.Contains(fields[1], ":") {
				continue // the head
			}
			// One end is enough, except that a closed connection is listed at either.
			from, to := fields[1], fields[2]
			if _, port, _ := strings.Cut(from, ":"); ports[port] {
				from, to = to, from
			}
			if _, port, _ := strings.Cut(to, ":"); ports[port] && !strings.HasSuffix(from, ":0000") {
				all[[2]string{from, to}] = true
			}
		}
	}
	return all
}

// switches returns how often a gateway's threads have begun to run or were taken off.
func switches(b *testing.B, g *Gateway) (sum int) {
	b.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", g.PID()))
	if err != nil || len(threads) == 0 {
		b.Fatalf("threads of %s: %v, %v", g.Name, threads, err)
	}
	for _, file := range threads {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(data)) {
			if _, n, found := strings.Cut(strings.TrimSpace(line), "voluntary_ctxt_switches:\t"); found { // and nonvoluntary
				times, err := strconv.Atoi(n)
				if err != nil {
					b.Fatal(err)
				}
				sum += times
			}
		}
	}
	return sum
}

// processorTime returns how much of it the gateways have used so far.
func processorTime(b *testing.B, c *Cluster) time.Duration {
	b.Helper()
	var sum time.Duration
	for _, g := range c.Gateways {
		used, err := g.ProcessorTime()
		if err != nil {
			b.Fatal(err)
		}
		sum += used
	}
	return sum
}
