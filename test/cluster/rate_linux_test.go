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

	down, up = "down", "up"
)

// zeros takes what it is sent, or answers with so many bytes as the path says.
var zeros = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		_, _ = io.Copy(io.Discard, r.Body)
		return
	}
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

// of returns what has moved in one direction.
func (b Bytes) of(direction string) int64 {
	if direction == up {
		return b.Up
	}
	return b.Down
}

// most returns the most bytes that moved in any time of the length between two moments, and
// how many in all of it.
func (s *samples) most(direction string, since, until time.Time, length time.Duration) (most, sum int64) {
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
		for in[i].At.Sub(in[j].Began) > length {
			j++
		}
		most = max(most, in[i].of(direction)-in[j].of(direction))
	}
	return most, in[len(in)-1].of(direction) - in[0].of(direction)
}

// move moves a file down or up again and again until ctx ends.
func move(ctx context.Context, g *Gateway, direction string, size int64) {
	for ctx.Err() == nil {
		url := fmt.Sprintf("http://%s/files/%d", g.HTTP, size)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if direction == up {
			req, _ = http.NewRequestWithContext(ctx, http.MethodPut, url, io.LimitReader(neverEnding{}, size))
		}
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

// rateRun is three gateways that share a rate in one direction, and an upstream that counts.
type rateRun struct {
	*Cluster
	direction string
	counted   *samples
	slots     int // at most, now
	transfers sync.WaitGroup
}

// rate in bytes per second. Shares of it are judged in the long run; the ordinary one is for
// machines that cannot move more.
var rate = map[bool]float64{false: 8 << 20, true: 50 << 20}[Soak()]

// TestRate: three gateways, and twelve transfers over six slots, never move more than the
// rate, whatever becomes of the gateways, of k and of the rate; and they use it.
func TestRate(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	directions := map[string][]string{"late": {down}}
	if Soak() {
		directions = map[string][]string{"late": {down, up}, "early": {down, up}}
	}
	for binding, all := range directions {
		for _, direction := range all {
			t.Run(binding+" "+direction, func(t *testing.T) { testRate(t, binding, direction) })
		}
	}
}

func testRate(t *testing.T, binding, direction string) {
	judge, url := NewByteJudge(t, zeros)
	r := &rateRun{direction: direction, slots: rateK, Cluster: Start(t, Options{K: 1, Upstream: url, Lease: Lease(2 * time.Second), Pools: []Pool{{
		Name: "files", K: rateK, Upstream: url, Settings: fmt.Sprintf("binding: %s, rate: {%s: %.0fMiB/s}", binding, direction, rate/(1<<20)),
	}}})}
	r.counted = watchBytes(t, judge)
	t.Cleanup(r.transfers.Wait)
	if Soak() {
		r.one(t)
		r.two(t)
	}
	for _, g := range r.Gateways {
		for range 4 {
			r.start(t.Context(), g, int64(rate*2/5))
		}
	}
	Span(t, time.Second)
	set := func(args ...string) {
		t.Helper()
		args = append([]string{"pool", "set", "files"}, append(args, "--admin", "http://"+r.Gateways[0].Admin)...)
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		if err := Await(ctx, func() error { // it waits for gateways that are lost, for a while
			if _, said, code := run(t, args...); code != 0 {
				return fmt.Errorf("%v: exit code %d: %s", args, code, said)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	r.used(t, "twelve", rate, 2*time.Second)
	r.slots = 12
	r.during(t, "k 12", func() { set("--k", "12") })
	r.during(t, "k 3", func() { set("--k", "3") })
	r.during(t, "k 6", func() { set("--k", "6") })
	r.slots = rateK
	r.during(t, "one stopped", func() {
		_ = r.Gateways[2].Signal(syscall.SIGSTOP)
		Span(t, 3*time.Second)
		_ = r.Gateways[2].Signal(syscall.SIGCONT)
	})
	r.during(t, "one killed", func() {
		_ = r.Gateways[2].Signal(syscall.SIGKILL)
		Span(t, r.opt.Lease) // what is set meanwhile waits for it
	})
	flag := map[string]string{down: "--rate", up: "--rate-up"}[direction]
	set(flag, fmt.Sprintf("%.0fMiB/s", rate/(2<<20)))
	r.used(t, "half the rate", rate/2, 2*time.Second)
	set(flag, fmt.Sprintf("%.0fMiB/s", rate/(1<<20)))
	r.used(t, "the rate again, by those that are left", rate, 2*time.Second)
}

// start moves files of a size by way of a gateway until ctx ends.
func (r *rateRun) start(ctx context.Context, g *Gateway, size int64) {
	r.transfers.Go(func() { move(ctx, g, r.direction, size) })
}

// one transfer alone begins with the shares of the slots at its gateway, and has nearly all
// of the rate after 2 s.
func (r *rateRun) one(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	r.start(ctx, r.Gateways[1], 10<<30)
	for range 8 {
		before := time.Now()
		Span(t, 250*time.Millisecond)
		_, sum := r.counted.most(r.direction, before, time.Now(), time.Second)
		t.Logf("one after %v: %.0f %%", time.Since(began).Round(50*time.Millisecond), 100*float64(sum)/time.Since(before).Seconds()/rate)
	}
	r.grown(t, "one", began, 0.9, 1)
}

// two transfers that begin at once, at gateways that have no slot, take those of the third
// from each other: they share the rate. While they take as many from each other as they
// lose, they ask less and less often, so one slot of six may stay at the third for some seconds.
func (r *rateRun) two(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	r.start(ctx, r.Gateways[0], 10<<30)
	r.start(ctx, r.Gateways[2], 10<<30)
	Span(t, 2*time.Second)
	r.grown(t, "two", began, 0.8, 0, 2)
}

// grown holds that 2 s after transfers began the
// shares of their gateways come to at least this part of the rate, and each of them has some.
func (r *rateRun) grown(t *testing.T, what string, began time.Time, least float64, at ...int) {
	t.Helper()
	before := r.gained(t)
	Span(t, time.Second)
	after := r.gained(t)
	all := 0.0
	for _, i := range at {
		part := after.by[i] - before.by[i]
		part /= after.at.Sub(before.at).Seconds() * rate
		t.Logf("%s: %s has %.0f %% of the rate after 2 s", what, r.Gateways[i].Name, 100*part)
		if part < 0.5/float64(len(at)) {
			t.Errorf("%s: %s has %.0f %% of the rate", what, r.Gateways[i].Name, 100*part)
		}
		all += part
	}
	if all < least {
		t.Errorf("%s: %.0f %% of the rate is where it can be used after 2 s", what, 100*all)
	}
	r.capped(t, what, began, rate)
}

// gained is what each gateway's share of the rate has come to, in bytes.
type gained struct {
	at time.Time
	by []float64
}

func (r *rateRun) gained(t *testing.T) (all gained) {
	t.Helper()
	all.at = time.Now()
	for _, g := range r.Gateways {
		if g.ended() {
			continue
		}
		m, err := g.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all.by = append(all.by, m.Sum("kgate_rate_share_bytes_total", `pool="files"`, fmt.Sprintf("direction=%q", r.direction)))
	}
	return all
}

// used holds that in this time all of the rate is used: the gateways' shares come to it, and
// their transfers leave nothing of them. In the ordinary run something is.
func (r *rateRun) used(t *testing.T, what string, limit float64, span time.Duration) {
	t.Helper()
	before, began := r.gained(t), time.Now()
	Span(t, span)
	ended, after := time.Now(), r.gained(t)
	offered := 0.0
	for i := range after.by {
		offered += after.by[i] - before.by[i]
	}
	_, moved := r.counted.most(r.direction, began, ended, time.Second)
	shares := offered / limit / after.at.Sub(before.at).Seconds()
	took := float64(moved) / limit / ended.Sub(began).Seconds()
	t.Logf("%s: shares of %.1f %% of the rate, %.1f %% used", what, 100*shares, 100*took)
	if Soak() && (shares < 0.95 || took < 0.95) || moved == 0 {
		t.Errorf("%s: the gateways' shares come to %.1f %% of the rate, %.1f %% is used", what, 100*shares, 100*took)
	}
	r.capped(t, what, began, limit)
}

// during holds that no more than the rate moves while something happens, and after it.
func (r *rateRun) during(t *testing.T, what string, do func()) {
	t.Helper()
	began := time.Now()
	do()
	Span(t, 1500*time.Millisecond)
	r.capped(t, what, began, rate)
}

// capped holds that since then no more than a rate has moved in any second.
func (r *rateRun) capped(t *testing.T, what string, since time.Time, limit float64) {
	t.Helper()
	most, sum := r.counted.most(r.direction, since, time.Now(), time.Second)
	// 10 ms of the rate may be saved up, and each connection's system takes some in ahead.
	const ahead = 128 << 10
	bound := 1.01*limit + float64(r.slots*ahead)
	t.Logf("%s: at most %s in a second (%.1f %%), %s in all", what, mib(float64(most)), 100*float64(most)/limit, mib(float64(sum)))
	if float64(most) > bound {
		t.Errorf("%s: %s in a second, at most %s", what, mib(float64(most)), mib(bound))
	}
}
