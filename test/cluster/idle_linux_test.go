package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// BenchmarkIdle reports what part of a core gateways without requests use, all of them
// together, with mutual TLS and data_dir. One iteration is 10 s: use -benchtime 1x.
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
			c := Start(b, Options{Gateways: size, K: 10, Upstream: "http://127.0.0.1:1", Durable: true, KeyFile: file})
			time.Sleep(5 * time.Second) // what joining has begun is over
			before, began := processorTime(b, c), time.Now()
			for b.Loop() {
				time.Sleep(10 * time.Second)
			}
			used := processorTime(b, c) - before
			b.ReportMetric(100*used.Seconds()/time.Since(began).Seconds(), "%core")
		})
	}
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
