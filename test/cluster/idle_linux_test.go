package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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
			before, began := ticks(b, c), time.Now()
			for b.Loop() {
				time.Sleep(10 * time.Second)
			}
			used := float64(ticks(b, c)-before) / 100 // USER_HZ
			b.ReportMetric(100*used/time.Since(began).Seconds(), "%core")
		})
	}
}

// ticks returns how much CPU the gateways have used so far.
func ticks(b *testing.B, c *Cluster) int {
	b.Helper()
	sum := 0
	for _, g := range c.Gateways {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.PID()))
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		for _, f := range fields[11:13] { // utime, stime
			n, err := strconv.Atoi(f)
			if err != nil {
				b.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
