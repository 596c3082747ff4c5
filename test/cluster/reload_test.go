package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
)

// arrivals is an upstream that notes who comes in which order, and which keeps
// the first one until a reload.
type arrivals struct {
	first, proceed chan struct{}

	mu       sync.Mutex
	order    []string
	inFlight int
	most     int
}

func newArrivals() *arrivals {
	return &arrivals{first: make(chan struct{}), proceed: make(chan struct{})}
}

// at serves under a name, which it answers with.
func (a *arrivals) at(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/new/") { // not to this pool
			_, _ = io.WriteString(w, name)
			return
		}
		a.mu.Lock()
		a.order = append(a.order, r.URL.Path)
		if a.inFlight++; a.inFlight > a.most {
			a.most = a.inFlight
		}
		first := len(a.order) == 1
		a.mu.Unlock()
		if first {
			close(a.first)
			<-a.proceed
		}
		a.mu.Lock()
		a.inFlight--
		a.mu.Unlock()
		_, _ = io.WriteString(w, name)
	})
}

// TestReload has three gateways read changed files again while 150 requests wait
// at them and one is in flight: another upstream, other bounds on the line, more
// routes, one of them to a new pool. All are answered, those of each gateway in the order in which they
// came, and what comes afterwards meets what is new. A bad file changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	const waiters = 150
	upstream := newArrivals()
	_, _, before := NewJudge(t, upstream.at("old"))
	_, _, after := NewJudge(t, upstream.at("new"))
	c := Start(t, Options{K: 1, Upstream: before})
	c.Causes("configuration changed: needs a restart", "error in the configuration", "not reloaded: the configuration has errors, and the old one stays")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	r := &reloading{t: t, ctx: ctx, c: c, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(r.client.CloseIdleConnections)

	inFlight := r.ask(0, "first")
	<-upstream.first
	answers := r.line(waiters)
	for i, g := range c.Gateways {
		r.edit(i, before, after, "timeout: 1m0s", "timeout: 20ms", "routes:\n", fmt.Sprintf(newRoutes, after, after),
			"expect: 3", "expect: 2")
		if i == 0 {
			r.edit(i, "limit: 20000", "limit: 1")
		}
		r.hangUp(g, "reloaded")
		r.expectChange(g, "configuration changed", "pools[pool].queue.timeout", "1m", "20ms")
		r.expectChange(g, "configuration changed: needs a restart", "cluster.bootstrap_expect", "3", "2")
		if got := <-r.ask(i, "new/"); got.status != http.StatusOK || got.body != "new" {
			t.Errorf("%s, the new route: %+v", g.Name, got)
		}
		r.expectPool(i)
		refusal := []string{"queue-full", "timeout", "timeout"}[i]
		if got := <-r.ask(i, "late"); got.status != http.StatusServiceUnavailable || got.refusal != refusal {
			t.Errorf("%s, one more request: %+v, want %s", g.Name, got, refusal)
		}
	}
	r.expectBadFile(c.Gateways[0])

	close(upstream.proceed)
	if got := <-inFlight; got.status != http.StatusOK || got.body != "old" {
		t.Errorf("in flight meanwhile: %+v", got)
	}
	for _, answer := range answers {
		if got := <-answer; got.status != http.StatusOK || got.body != "new" {
			t.Errorf("waited meanwhile: %+v", got)
		}
	}
	upstream.mu.Lock()
	defer upstream.mu.Unlock()
	if len(upstream.order) != waiters+1 || upstream.most != 1 {
		t.Errorf("%d requests, at most %d at once; want %d, 1", len(upstream.order), upstream.most, waiters+1)
	}
	for i := range c.Gateways {
		prefix := fmt.Sprintf("/%d/", i)
		came := slices.DeleteFunc(slices.Clone(upstream.order), func(path string) bool { return !strings.HasPrefix(path, prefix) })
		if !slices.IsSorted(came) {
			t.Errorf("the upstream saw them out of order: %v", came)
		}
	}
}

// newRoutes are those of a new pool and past admission.
const newRoutes = `
  - {name: more, k: 2, upstreams: [%q]}
routes:
  - {pool: more, match: {path_prefix: /new/more/}}
  - {match: {path_prefix: /new/}, upstreams: [%q]}
`

// reloading is TestReload at work.
type reloading struct {
	t      *testing.T
	ctx    context.Context
	c      *Cluster
	client *http.Client
}

// reply is what a client got.
type reply struct {
	status        int
	body, refusal string
}

// ask sends a request to a gateway in the background.
func (r *reloading) ask(gateway int, path string) <-chan reply {
	out := make(chan reply, 1)
	go func() {
		req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.c.Gateways[gateway].URL()+path, nil)
		if err != nil {
			out <- reply{body: err.Error()}
			return
		}
		res, err := r.client.Do(req)
		if err != nil {
			out <- reply{body: err.Error()}
			return
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			body = []byte(err.Error())
		}
		out <- reply{res.StatusCode, string(body), res.Header.Get("Kgate-Refusal")}
	}()
	return out
}

// line puts n requests in line at all gateways, at each one after the other.
func (r *reloading) line(n int) []<-chan reply {
	answers := make([]<-chan reply, n)
	var wg sync.WaitGroup
	for i, g := range r.c.Gateways {
		wg.Go(func() {
			for at, came := i, 1; at < n; at, came = at+len(r.c.Gateways), came+1 {
				answers[at] = r.ask(i, fmt.Sprintf("%d/%04d", i, at))
				if err := Await(r.ctx, func() error { return waits(r.ctx, g, came) }); err != nil {
					r.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if r.t.Failed() {
		r.t.FailNow()
	}
	return answers
}

// waits returns nil when n requests wait at g.
func waits(ctx context.Context, g *Gateway, n int) error {
	s, err := g.Status(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(s.Pools, func(p admin.Pool) bool { return p.Name == PoolName })
	if i < 0 || s.Pools[i].Waiting != n {
		return fmt.Errorf("%s: not %d waiting: %+v", g.Name, n, s.Pools)
	}
	return nil
}

// expectPool waits until the pool that is new serves at a gateway.
func (r *reloading) expectPool(gateway int) {
	r.t.Helper()
	err := Await(r.ctx, func() error {
		if got := <-r.ask(gateway, "new/more/"); got.status != http.StatusOK || got.body != "new" {
			return fmt.Errorf("the new pool answers %+v", got)
		}
		return nil
	})
	if err != nil {
		r.t.Error(err)
	}
}

func (r *reloading) file(g *Gateway) string { return filepath.Join(r.c.dir, g.Name+".yaml") }

// edit replaces text in a gateway's file, in pairs of old and new.
func (r *reloading) edit(gateway int, pairs ...string) {
	r.t.Helper()
	file := r.file(r.c.Gateways[gateway])
	data, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(string(data), pairs[i]) {
			r.t.Fatalf("no %q in\n%s", pairs[i], data)
		}
	}
	r.write(file, strings.NewReplacer(pairs...).Replace(string(data)))
}

func (r *reloading) write(file, text string) {
	r.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// hangUp has the gateway read its file again, and waits until it says so.
func (r *reloading) hangUp(g *Gateway, says string) {
	r.t.Helper()
	was := len(g.Log.Records(says))
	if err := g.Signal(syscall.SIGHUP); err != nil {
		r.t.Fatal(err)
	}
	err := Await(r.ctx, func() error {
		if len(g.Log.Records(says)) == was {
			return errors.New("it does not say: " + says)
		}
		return nil
	})
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", g.Name, err, g.Log.Tail(20))
	}
}

func (r *reloading) expectChange(g *Gateway, message, key, before, after string) {
	r.t.Helper()
	for _, rec := range g.Log.Records(message) {
		if rec.Text("key") == key && rec.Text("old") == before && rec.Text("new") == after {
			return
		}
	}
	r.t.Errorf("%s does not tell that %s was %s and is %s:\n%s", g.Name, key, before, after, g.Log.Tail(20))
}

// expectBadFile gives the gateway a file with two errors and one with an upstream
// certificate that is not there: all are reported, and nothing changes.
func (r *reloading) expectBadFile(g *Gateway) {
	r.t.Helper()
	data, err := os.ReadFile(r.file(g))
	if err != nil {
		r.t.Fatal(err)
	}
	good, said := string(data), 0
	for _, bad := range []struct {
		old, new string
		errors   int
	}{
		{"k: 1,", "k: 0, colour: red,", 2},
		{"k: 1,", "k: 1, transport: {tls: {ca: /nowhere/ca.pem}},", 1},
	} {
		r.write(r.file(g), strings.Replace(good, bad.old, bad.new, 1))
		r.hangUp(g, "not reloaded: the configuration has errors, and the old one stays")
		told := g.Log.Records("error in the configuration")
		if said += bad.errors; len(told) != said {
			r.t.Errorf("%d errors told, want %d: %v", len(told), said, told)
		}
	}
	r.write(r.file(g), good)
	if got := <-r.ask(0, "new/"); got.body != "new" {
		r.t.Errorf("after bad files: %+v", got)
	}
	began := time.Now()
	r.hangUp(g, "reloaded")
	if rec := g.Log.Records("reloaded"); rec[len(rec)-1]["changes"] != 1.0 { // bootstrap_expect still waits for a restart
		r.t.Errorf("%v after %v", rec, time.Since(began))
	}
}
