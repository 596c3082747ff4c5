package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"
)

// visitors are what comes to an upstream and goes at random.
func visitors() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/quick", func(w http.ResponseWriter, r *http.Request) {
		if hold(r, 5*time.Millisecond) {
			_, _ = io.WriteString(w, "ok\n")
		}
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		part := make([]byte, 8<<10)
		for range 10 {
			if _, err := w.Write(part); err != nil || !hold(r, 5*time.Millisecond) {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			_, _ = fmt.Fprintf(w, "%d\n", n)
		}
	})
	mux.HandleFunc("/echo", echo)
	return mux
}

// hold waits, unless the client leaves.
func hold(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// echo upgrades the connection, repeats every line, and closes after "bye".
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "echo" {
		http.Error(w, "upgrade to echo", http.StatusUpgradeRequired)
		return
	}
	conn, brw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	defer leaveEarly(r)
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		return
	}
	for {
		line, err := brw.ReadBytes('\n')
		if err != nil || bytes.Equal(line, []byte("bye\n")) {
			return
		}
		if _, err := conn.Write(line); err != nil {
			return
		}
	}
}

// guest is one client that comes and goes.
type guest struct {
	http *http.Client
	url  string
	rng  *rand.Rand
	// did counts what the guest has done, by name.
	did map[string]int
}

func (g *guest) millis(most int) time.Duration {
	return time.Duration(g.rng.IntN(most*1000)) * time.Microsecond
}

// visit does one thing, and returns an error if it went as it must not go.
func (g *guest) visit(ctx context.Context) error {
	kind, act := "", g.quick
	switch n := g.rng.IntN(100); {
	case n < 30:
		kind = "answered"
	case n < 55:
		kind, act = "cancelled", g.cancel
	case n < 75:
		kind, act = "download aborted", g.abort
	case n < 85:
		kind, act = "upload broken off", g.upload
	default:
		kind, act = "upgraded", g.upgrade
	}
	g.did[kind]++
	if err := act(ctx); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

func (g *guest) do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, g.url+path, body)
	if err != nil {
		return nil, err
	}
	return g.http.Do(req)
}

func (g *guest) quick(ctx context.Context) error {
	res, err := g.do(ctx, http.MethodGet, "quick", http.NoBody)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || string(body) != "ok\n") {
		err = fmt.Errorf("%s: %.80q", res.Status, body)
	}
	return err
}

// cancel leaves after a while: while queued, most often.
func (g *guest) cancel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, g.millis(300))
	defer cancel()
	err := g.quick(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// abort leaves in the middle of a download.
func (g *guest) abort(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := g.do(ctx, http.MethodGet, "slow", http.NoBody)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	if _, err = io.CopyN(io.Discard, res.Body, int64(1+g.rng.IntN(60<<10))); err != nil {
		return fmt.Errorf("before it was aborted: %w", err)
	}
	return nil
}

var errBrokenOff = errors.New("the guest breaks off")

// upload leaves in the middle of the request's body.
func (g *guest) upload(ctx context.Context) error {
	pause := g.millis(20)
	body := io.MultiReader(bytes.NewReader(make([]byte, g.rng.IntN(100<<10))), readerFunc(func([]byte) (int, error) {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		<-timer.C
		return 0, errBrokenOff
	}))
	res, err := g.do(ctx, http.MethodPost, "upload", body)
	if err == nil {
		defer res.Body.Close()
		return fmt.Errorf("half a request is answered: %s", res.Status)
	}
	if !errors.Is(err, errBrokenOff) {
		return err
	}
	return nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// upgrade talks over an upgraded connection, which either side closes.
func (g *guest) upgrade(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+"echo", http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	res, err := g.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	conn, ok := res.Body.(io.ReadWriter)
	if res.StatusCode != http.StatusSwitchingProtocols || !ok {
		return errors.New(res.Status)
	}
	answers := bufio.NewReader(conn)
	for range 1 + g.rng.IntN(5) {
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			return err
		}
		if line, err := answers.ReadString('\n'); err != nil || line != "hello\n" {
			return fmt.Errorf("echo of hello: %q, %w", line, err)
		}
	}
	if g.rng.IntN(2) == 0 {
		return nil // the guest closes
	}
	if _, err := io.WriteString(conn, "bye\n"); err != nil {
		return err
	}
	if rest, err := io.ReadAll(answers); err != nil || len(rest) > 0 {
		return fmt.Errorf("after bye: %q, %w", rest, err)
	}
	return nil
}

// crowd has many guests come and go for a while. It returns what they have done
// and the first few errors.
func crowd(ctx context.Context, c *Cluster, guests int, seed uint64, during time.Duration) (did map[string]int, errs []error) {
	transport := &http.Transport{MaxIdleConnsPerHost: guests, DisableCompression: true}
	defer transport.CloseIdleConnections()
	until := time.Now().Add(during)
	did = make(map[string]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range guests {
		g := &guest{
			http: &http.Client{Transport: transport}, url: c.Gateways[i%len(c.Gateways)].URL(),
			rng: rand.New(rand.NewPCG(seed, uint64(i))), did: make(map[string]int),
		}
		wg.Go(func() {
			var err error
			for err == nil && time.Now().Before(until) {
				timer := time.NewTimer(g.millis(200))
				<-timer.C
				err = g.visit(ctx)
			}
			mu.Lock()
			defer mu.Unlock()
			for what, n := range g.did {
				did[what] += n
			}
			if err != nil && len(errs) < 10 {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return did, errs
}

// TestComeAndGo has clients come and go in every way, and looks whether
// everything is back in its place afterwards.
func TestComeAndGo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	const (
		k         = 20
		tolerance = 8 // goroutines that come and go by themselves: raft's and gossip's
	)
	guests, during := 300, 4*time.Second
	if Soak() {
		guests, during = 1000, 8*time.Second
	}
	for _, binding := range []string{"late", "early"} {
		t.Run(binding, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			judge, server, url := NewJudge(t, visitors())
			c := Start(t, Options{K: k, Upstream: url, Binding: binding})
			quiet := func() { // idle connections cost goroutines
				server.SetKeepAlivesEnabled(false)
				server.SetKeepAlivesEnabled(true)
			}
			freshAtEach(t, c)
			quiet()
			before := goroutines(t, c)

			did, errs := crowd(t.Context(), c, guests, seed, during)
			for _, err := range errs {
				t.Error(err)
			}
			ended := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := c.AwaitWhole(ctx); err != nil {
				t.Error(err)
			}
			whole := time.Since(ended)
			quiet()
			// A gateway that computes much needs more connections to the others, and
			// keeps them for half a minute.
			ctx, cancel = context.WithTimeout(t.Context(), 45*time.Second)
			defer cancel()
			err := Await(ctx, func() error {
				for i, n := range goroutines(t, c) {
					if n > before[i]+tolerance {
						return fmt.Errorf("gateway %d has %.0f goroutines, before it had %.0f", i+1, n, before[i])
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
				for _, g := range c.Gateways {
					profile, err := g.get(t.Context(), "/debug/pprof/goroutine?debug=1")
					t.Logf("%s: %s %v", g.Name, profile, err)
				}
			}
			inFlight, most, total := judge.Counts()
			t.Logf("%v; %d reached the upstream, most in flight %d (k %d); whole again %v after the last client", did, total, most, k, whole.Round(time.Millisecond))
			t.Logf("goroutines before %v, afterwards %v", before, goroutines(t, c))
			if inFlight != 0 || most > k {
				t.Errorf("in flight at the upstream: %d, at most %d; k is %d", inFlight, most, k)
			}
			freshAtEach(t, c)
		})
	}
}

// freshAtEach has every gateway serve one request.
func freshAtEach(t *testing.T, c *Cluster) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	for _, gw := range c.Gateways {
		g := &guest{http: &http.Client{Transport: transport, Timeout: patience}, url: gw.URL()}
		if err := g.quick(t.Context()); err != nil {
			t.Errorf("a fresh request at %s: %v", gw.Name, err)
		}
	}
}

// goroutines returns how many each gateway has.
func goroutines(t *testing.T, c *Cluster) []float64 {
	t.Helper()
	var out []float64
	for _, g := range c.Gateways {
		m, err := g.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m.Sum("go_goroutines"))
	}
	return out
}
