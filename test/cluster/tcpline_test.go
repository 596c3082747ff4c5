package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
)

// TestTenThousandConnections has 10,000 connections wait at one gateway, 1,000 in the ordinary
// run, idle, each with a few bytes that its client has said already, and then serves them one
// after the other.
func TestTenThousandConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc to tell the gateway's memory")
	}
	t.Parallel()
	const k = 1
	waiters := 1000
	if Soak() {
		waiters = 10_000
	}
	files := waiters + 1000
	if limit := openFiles(t); limit < files {
		miss := t.Skipf
		if os.Getenv("CI") == "true" {
			miss = t.Fatalf // what CI does not run is not tested
		}
		miss("needs a limit of %d open files per process (ulimit -Hn), it is %d", files, limit)
	}
	gate := make(chan struct{})
	var mu sync.Mutex
	var order []int
	judge, addr := NewTCPJudge(t, func(c *net.TCPConn) {
		<-gate
		var number [4]byte
		if _, err := io.ReadFull(c, number[:]); err == nil {
			mu.Lock()
			order = append(order, int(binary.BigEndian.Uint32(number[:])))
			mu.Unlock()
		}
	})
	c := Start(t, Options{Gateways: 1, K: 1, Upstream: "http://127.0.0.1:9", MaxConnections: files, Pools: []Pool{
		{Name: "tcp", K: k, Upstream: "tcp://" + addr, Settings: "queue: {timeout: 5m, limit: 20000}, hold: {max: 5m, idle: 5m}"},
	}})
	g := c.Gateways[0]
	before, err := g.RSS()
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]net.Conn, waiters+k)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", c.TCP(g.Name, "tcp")); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
		if _, err := conns[i].Write(binary.BigEndian.AppendUint32(nil, uint32(i))); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := Await(ctx, func() error { return expectWaiting(ctx, g, waiters) }); err != nil {
		t.Fatal(err)
	}
	after, err := g.RSS()
	if err != nil {
		t.Fatal(err)
	}
	each := float64(after-before) / float64(waiters) / 1024
	began := time.Now()
	close(gate)
	var reading sync.WaitGroup
	for i, conn := range conns {
		reading.Go(func() {
			_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
			if n, err := io.Copy(io.Discard, conn); n != 0 || err != nil {
				t.Errorf("client %d read %d bytes, %v", i, n, err)
			}
			_ = conn.Close()
		})
	}
	reading.Wait()
	took := time.Since(began)
	worst := 0
	for place, i := range order {
		worst = max(worst, place-i, i-place)
	}
	_, most, total := judge.Counts()
	t.Logf("%d connections waited; memory %.1f MiB before, %.1f MiB with them: %.1f KiB for each", waiters,
		float64(before)/(1<<20), float64(after)/(1<<20), each)
	t.Logf("then served in %v, one at a time: %.0f a second; none more than %d places from where it came", took.Round(time.Millisecond),
		float64(total)/took.Seconds(), worst)
	if most != k || total != waiters+k || len(order) != waiters+k {
		t.Errorf("%d connections of %d, at most %d at once", total, waiters+k, most)
	}
	if each >= 24 {
		t.Errorf("%.1f KiB for each that waits", each)
	}
	// Who is accepted just when the system stops a thread is overtaken by some.
	if worst > int(timing.Slack())*waiters/10 {
		t.Errorf("a client was served %d places from where it came", worst)
	}
}

// expectWaiting is an error if another number waits in the pool tcp.
func expectWaiting(ctx context.Context, g *Gateway, want int) error {
	s, err := g.Status(ctx)
	if err != nil {
		return err
	}
	for _, p := range s.Pools {
		if p.Name == "tcp" && p.Waiting != want {
			return fmt.Errorf("%d wait, want %d", p.Waiting, want)
		} else if p.Name == "tcp" {
			return nil
		}
	}
	return errors.New("there is no pool tcp")
}
