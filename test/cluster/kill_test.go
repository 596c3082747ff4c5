package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
)

// killRun kills gateways under load, one at a time, and starts each again.
type killRun struct {
	c     *Cluster
	judge *Judge
	load  *Load
	k     int
	lease time.Duration

	kills []kill
}

// kill is what one SIGKILL did.
type kill struct {
	victim    string
	roles     string
	at, ready time.Time
	gap       time.Duration // longest time without a request at the upstream
	whole     time.Duration // until k requests were in flight again
}

// TestKill kills each of 3 and of 5 gateways in turn, and the leader, the home
// and the holder of the baton besides.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	total := Count(t, "KGATE_KILLS", 6, 50)
	for _, size := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d gateways", size), func(t *testing.T) {
			t.Parallel()
			// With 3, kgate's default; 1 s needs a machine that does nothing else.
			r := killRun{k: 6, lease: Lease(map[int]time.Duration{3: 3 * time.Second, 5: time.Second}[size])}
			judge, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { hold(req, 60*time.Millisecond) }))
			r.judge = judge
			r.c = Start(t, Options{Gateways: size, K: r.k, Upstream: url, Durable: true, Lease: r.lease})
			judge.Keep()
			r.c.WatchStatus(t)
			// Two gateways can use all slots, and none can have more than four: the
			// slots of the others go on.
			r.load = StartLoad(t, r.c.Gateways, LoadOptions{Clients: 4})
			Span(t, time.Second)
			for i := range total / 2 {
				victim, roles := r.choose(t, i)
				r.kill(t, victim, roles)
			}
			r.load.Stop()
			r.check(t)
		})
	}
}

// choose returns the next victim: every gateway in turn, and in between those
// with a part of their own.
func (r *killRun) choose(t *testing.T, i int) (victim int, roles Roles) {
	t.Helper()
	roles, err := r.c.Roles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	special := []int{roles.Baton, roles.Leader, roles.Home}[i/2%3]
	if special >= 0 && i%2 == 0 {
		return special, roles
	}
	return i / 2 % len(r.c.Gateways), roles
}

// kill kills a gateway, waits until the others use all slots, and starts it
// again.
func (r *killRun) kill(t *testing.T, victim int, roles Roles) {
	t.Helper()
	g := r.c.Gateways[victim]
	k := kill{victim: g.Name, roles: roles.Of(victim), at: time.Now()}
	if err := g.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Wait(patience); err != nil {
		t.Fatal(err)
	}
	Span(t, time.Until(k.at.Add(Whole(r.lease)))) // the line may stop more than once
	r.judge.AwaitInFlight(t, k.victim+" killed,"+k.roles, time.Now(), r.k, 5*time.Second)
	k.gap, k.whole = r.standstill(k.at)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.c.Restart(t, victim).AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	k.ready = time.Now()
	r.kills = append(r.kills, k)
	if err := Await(ctx, func() error {
		if Served(r.load.Since(k.ready), time.Now())[k.victim] == 0 {
			return fmt.Errorf("%s is ready and serves nobody", k.victim)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	t.Logf("%s killed,%s: no request for %v, all slots in use after %v, back after %v", k.victim, k.roles,
		k.gap.Round(time.Millisecond), k.whole.Round(time.Millisecond), k.ready.Sub(k.at).Round(time.Millisecond))
}

// full tells whether a request has found all other slots in use.
func (r *killRun) full(a Arrival) bool { return a.InFlight >= r.k }

// standstill returns the longest time without a request since then, and when all
// slots were in use after it.
func (r *killRun) standstill(since time.Time) (gap, whole time.Duration) {
	arrivals, end, last := r.judge.Since(since), since, since
	for _, a := range arrivals {
		if a.At.Sub(last) > gap {
			gap, end = a.At.Sub(last), a.At
		}
		last = a.At
	}
	for _, a := range arrivals {
		if !a.At.Before(end) && r.full(a) {
			return gap, a.At.Sub(since)
		}
	}
	return gap, time.Since(since)
}

// excused tells whether the request's gateway was dead in the meantime.
func (r *killRun) excused(a Answer) bool {
	return slices.ContainsFunc(r.kills, func(k kill) bool {
		return k.victim == a.Gateway && a.Sent.Before(k.ready) && a.Done.After(k.at)
	})
}

func (r *killRun) check(t *testing.T) {
	t.Helper()
	if _, most, _ := r.judge.Counts(); most != r.k {
		t.Errorf("most in flight at the upstream is %d, k is %d", most, r.k)
	}
	r.judge.CheckHistory(t, PoolName, r.k)
	var gaps, wholes []time.Duration
	for _, k := range r.kills {
		gaps, wholes = append(gaps, k.gap), append(wholes, k.whole)
	}
	slices.Sort(gaps)
	slices.Sort(wholes)
	slowest := time.Duration(0)
	var failed []Answer
	all := r.load.Since(time.Time{})
	for _, a := range all {
		if r.excused(a) {
			continue
		}
		slowest = max(slowest, a.Done.Sub(a.Sent))
		if a.Result != OK {
			failed = append(failed, a)
		}
	}
	worst := len(gaps) - 1
	t.Logf("%d kills, lease %v: no request for %v at the median, %v at worst; all slots in use after %v at the median, %v at worst; of %d requests at living gateways %d failed, the slowest took %v",
		len(gaps), r.lease, gaps[worst/2], gaps[worst], wholes[worst/2], wholes[worst], len(all), len(failed), slowest.Round(time.Millisecond))
	// All tokens can have been with the killed gateway, or in its sockets: those
	// that are released while the kernel takes a killed process apart still go
	// there. Then nothing moves until its lease has run out.
	if Soak() {
		timing.Within(t, "no request, at the median", gaps[worst/2], time.Second)
	}
	timing.Within(t, "all slots in use, at worst", wholes[worst], Whole(r.lease))
	timing.Within(t, "the slowest request", slowest, Whole(r.lease))
	if len(failed) > 0 {
		t.Errorf("failed at living gateways: %s", strings.TrimPrefix(Refusals(failed), "map"))
	}
}

// TestKilledWhileItSends: when a gateway is killed, its upstream hears at once that the
// request is broken off: what the gateway's system still had to send is dropped.
func TestKilledWhileItSends(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := Start(t, Options{Gateways: 1, K: 1, Upstream: "http://" + l.Addr().String()}).Gateways[0]
	body, sent := io.Pipe()
	defer sent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sender sync.WaitGroup
	defer sender.Wait()
	defer cancel()
	sender.Go(func() {
		defer body.Close() // ends the writer
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL(), body)
		if err != nil {
			t.Error(err)
			return
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
		}
	})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The upstream does not read, so that the systems on both sides fill up.
	chunk := make([]byte, 64<<10)
	var written atomic.Int64
	sender.Go(func() {
		for err := error(nil); err == nil; {
			_, err = sent.Write(chunk)
			written.Add(int64(len(chunk)))
		}
	})
	for before := int64(-1); written.Load() != before; time.Sleep(200 * time.Millisecond) {
		before = written.Load()
	}
	if err := g.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-g.Done()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	// What the upstream's own system has by then may still be read.
	n, err := io.Copy(io.Discard, conn)
	if !errors.Is(err, syscall.ECONNRESET) || n > written.Load()/2 {
		t.Errorf("the upstream read %d of %d bytes after the kill, and then %v; want a reset at once", n, written.Load(), err)
	}
}
