package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	rateK = 6
	rate  = 50 << 20 // bytes per second
)

// zeros is an answer of so many bytes as the path says.
var zeros = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(path.Base(r.URL.Path), 10, 64)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	_, _ = io.CopyN(w, neverEnding{}, n)
})

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

// samples looks at a judge every few milliseconds.
type samples struct {
	mu  sync.Mutex
	all []Bytes
}

func watchBytes(t *testing.T, j *ByteJudge) *samples {
	s := new(samples)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, 2*time.Millisecond) {
			b := j.Now()
			s.mu.Lock()
			s.all = append(s.all, b)
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// most returns the most bytes that went down in any time of the length between two moments, and the mean
// rate between these.
func (s *samples) most(since, until time.Time, length time.Duration) (most int64, mean float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var in []Bytes
	for _, b := range s.all {
		if !b.At.Before(since) && !b.At.After(until) {
			in = append(in, b)
		}
	}
	if len(in) < 2 {
		return 0, 0
	}
	j := 0
	for i := range in {
		for in[i].At.Sub(in[j].At) > length {
			j++
		}
		most = max(most, in[i].Down-in[j].Down)
	}
	last := in[len(in)-1]
	return most, float64(last.Down-in[0].Down) / last.At.Sub(in[0].At).Seconds()
}

// download asks for a file again and again until ctx ends.
func download(ctx context.Context, g *Gateway, path string, size int64) {
	for ctx.Err() == nil {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s%s/%d", g.HTTP, path, size), http.NoBody)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
}

func mib(n float64) string { return fmt.Sprintf("%.1f MiB", n/(1<<20)) }

// TestRate: three gateways, and twelve downloads over six slots, never move more than the
// rate, whatever becomes of the gateways, of k and of the rate.
func TestRate(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	for _, binding := range []string{"late", "early"} {
		t.Run(binding, func(t *testing.T) { rateRun(t, binding) })
	}
}

func rateRun(t *testing.T, binding string) {
	judge, url := NewByteJudge(t, zeros)
	c := Start(t, Options{K: 1, Upstream: url, Lease: time.Second, Pools: []Pool{{
		Name: "files", K: rateK, Upstream: url, Settings: "binding: " + binding + ", rate: {down: 50MiB/s}",
	}}})
	s := watchBytes(t, judge)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	start := func(ctx context.Context, g *Gateway, size int64) {
		wg.Go(func() { download(ctx, g, "/files", size) })
	}
	slots := rateK
	report := func(what string, since time.Time, limit float64) {
		t.Helper()
		most, mean := s.most(since, time.Now(), time.Second)
		// 10 ms of the rate may be saved up, and each connection's system takes some in ahead.
		const ahead = 128 << 10
		bound := 1.01*limit + float64(slots*ahead)
		t.Logf("%s: at most %s in a second (%.1f %%), mean %s/s (%.1f %%)", what, mib(float64(most)), 100*float64(most)/limit, mib(mean), 100*mean/limit)
		if float64(most) > bound {
			t.Errorf("%s: %s in a second, at most %s", what, mib(float64(most)), mib(bound))
		}
	}

	began := time.Now()
	one, stopOne := context.WithCancel(ctx)
	start(one, c.Gateways[1], 10<<30)
	for range 8 {
		before := time.Now()
		Span(t, 250*time.Millisecond)
		_, mean := s.most(before, time.Now(), time.Second)
		t.Logf("one download after %v: %.0f %%", time.Since(began).Round(50*time.Millisecond), 100*mean/rate)
	}
	stopOne()
	report("one", began, rate)

	for _, g := range c.Gateways {
		for range 4 {
			start(ctx, g, 20<<20)
		}
	}
	Span(t, 500*time.Millisecond)
	during := func(what string, limit float64, do func()) {
		t.Helper()
		began := time.Now()
		do()
		Span(t, 2*time.Second)
		report(what, began, limit)
	}
	set := func(args ...string) {
		t.Helper()
		args = append([]string{"pool", "set", "files"}, append(args, "--admin", "http://"+c.Gateways[0].Admin)...)
		if _, said, code := run(t, args...); code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, said)
		}
	}
	during("twelve", rate, func() {})
	slots = 12
	during("k 12", rate, func() { set("--k", "12") })
	during("k 3", rate, func() { set("--k", "3") })
	during("k 6", rate, func() { set("--k", "6") })
	slots = rateK
	during("one stopped", rate, func() {
		_ = c.Gateways[2].Signal(syscall.SIGSTOP)
		Span(t, 3*time.Second)
		_ = c.Gateways[2].Signal(syscall.SIGCONT)
	})
	during("one killed", rate, func() { _ = c.Gateways[2].Signal(syscall.SIGKILL) })
	set("--rate", "25MiB/s")
	during("half the rate", rate/2, func() {})
	during("the rate again", rate, func() { set("--rate", "50MiB/s") })
}
