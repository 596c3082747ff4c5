package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/proxy"
)

// tableOnly is a cluster that agrees at once.
type tableOnly struct {
	t      *testing.T
	pool   membership.Pool
	epochs []time.Time
}

func (c *tableOnly) View() *membership.View {
	return &membership.View{Pools: []membership.Pool{c.pool}}
}

func (c *tableOnly) SetServers(_ context.Context, set membership.SetServers) error {
	next, changed, err := c.pool.WithServers(set)
	if err != nil || !changed || set.Epoch != c.pool.Epoch {
		c.t.Errorf("%+v: %t, %v", set, changed, err)
		return err
	}
	next.Epoch++
	c.pool = next
	if n := len(c.epochs); n > 0 && time.Since(c.epochs[n-1]) < time.Second {
		c.t.Errorf("an epoch %v after another", time.Since(c.epochs[n-1]))
	}
	c.epochs = append(c.epochs, time.Now())
	return nil
}

// k returns the k of a server; -1: the table does not have it.
func (c *tableOnly) k(server string) int {
	k, known := c.pool.UpstreamK(server)
	if !known {
		return -1
	}
	return k
}

func server(i int) string { return fmt.Sprintf("http://10.0.0.%d:8000", i) }

// TestServersFollowed: a new server is used at once, one that is gone when three look-ups in a row lack
// it; epochs begin at most once a second; the k that people set stays.
func TestServersFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const home = 7
		u := &url.URL{Scheme: "http", Host: "llm.test:8000", Fragment: "k_each=2"}
		c := &tableOnly{t: t, pool: membership.Pool{
			Name: "llm", K: 2, Epoch: 1, Home: home, Classes: []membership.Class{{Upstream: server(1), K: 2, Name: "http://llm.test:8000"}},
		}}
		var answer []string
		var asked int
		s := &servers{lookUp: func(context.Context, *url.URL) ([]string, error) {
			if asked++; len(answer) == 0 {
				return nil, errors.New("no such host")
			}
			return slices.Clone(answer), nil
		}}
		pools := map[string]Pool{"llm": {Pool: proxy.Pool{Name: "llm", Upstreams: []*url.URL{u}, Transport: proxy.Transport{Resolve: 10 * time.Second}}}}
		var log strings.Builder
		run := func(self uint64, d time.Duration, now ...int) {
			answer = nil
			for _, i := range now {
				answer = append(answer, server(i))
			}
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(serversEvery) {
				s.look(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), c, kmutex.Node(self), pools)
			}
		}
		want := func(what string, ks ...int) {
			t.Helper()
			for i, k := range ks {
				if have := c.k(server(i + 1)); have != k {
					t.Errorf("%s: k of %s is %d, want %d", what, server(i+1), have, k)
				}
			}
		}
		run(9, 30*time.Second, 1, 2)
		if asked > 0 {
			t.Error("a gateway that is not home looks names up")
		}
		run(home, time.Second, 1, 2)
		want("a new one", 2, 2, -1)
		run(home, 10*time.Second, 1)
		want("gone once", 2, 2, -1)
		run(home, 10*time.Second, 1)
		run(home, 10*time.Second, 1, 2)
		run(home, 20*time.Second, 1)
		want("gone and back", 2, 2, -1)
		run(home, 10*time.Second, 1)
		want("gone", 2, 0, -1)
		run(home, time.Minute)
		want("no name server", 2, 0, -1)
		if n := strings.Count(log.String(), "cannot be looked up"); n != 1 {
			t.Errorf("%d lines that it cannot be looked up", n)
		}
		run(home, 10*time.Second, 3)
		want("another one", 2, 0, 2)
		run(home, 20*time.Second, 3)
		want("the first has gone", 0, 0, 2)
		run(home, 10*time.Second, 1, 3)
		want("the first is back", 2, 0, 2)
		c.pool.Classes = slices.Clone(c.pool.Classes)
		c.pool.Classes[slices.IndexFunc(c.pool.Classes, func(class membership.Class) bool { return class.Upstream == server(1) })].K = 0
		c.pool.K = 2
		run(home, time.Minute, 1, 3)
		want("the first is at k 0 by command", 0, 0, 2)
		run(home, time.Minute, 3)
		run(home, 10*time.Second, 1, 3)
		want("it had left its name", 2, 0, 2)
	})
}

// TestServersInTurn: a name whose servers change with each look-up does not keep others from being looked up.
func TestServersInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &tableOnly{t: t, pool: membership.Pool{Name: "llm", K: 2, Epoch: 1, Home: 7, Classes: []membership.Class{{Upstream: server(1), K: 2, Name: "http://a.test"}}}}
		asked, last := make(map[string]int), 0
		s := &servers{lookUp: func(_ context.Context, u *url.URL) ([]string, error) {
			asked[u.Host]++
			if u.Host != "c.test" {
				last++
				return []string{server(last%100 + 1)}, nil
			}
			return []string{server(200)}, nil
		}}
		pool := proxy.Pool{Name: "llm", Transport: proxy.Transport{Resolve: time.Second}}
		for _, host := range []string{"a.test", "b.test", "c.test"} {
			pool.Upstreams = append(pool.Upstreams, &url.URL{Scheme: "http", Host: host, Fragment: "k_each=2"})
		}
		pools := map[string]Pool{"llm": {Pool: pool}}
		for range 60 {
			s.look(t.Context(), slog.New(slog.DiscardHandler), c, 7, pools)
			time.Sleep(serversEvery)
		}
		if asked["a.test"] < 20 || asked["b.test"] < 20 || asked["c.test"] < 20 || c.k(server(200)) != 2 {
			t.Errorf("look-ups: %v; k of the last name's server is %d", asked, c.k(server(200)))
		}
	})
}

// TestServersOfOneKind: an answer that lacks addresses of one kind, beside one with those of the other, gives
// no server its k twice.
func TestServersOfOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const four, six, six2 = "http://10.0.0.1:8000", "http://[2001:db8::1]:8000", "http://[2001:db8::2]:8000"
		for _, kinds := range [][3]string{{four, six, six2}, {six, four, server(2)}} {
			has, other, more := kinds[0], kinds[1], kinds[2]
			c := &tableOnly{t: t, pool: membership.Pool{Name: "llm", K: 3, Epoch: 1, Home: 7, Classes: []membership.Class{
				{Upstream: has, K: 2, Name: "http://a.test:8000"}, {Upstream: "http://listed", K: 1},
			}}}
			var answer []string
			s := &servers{lookUp: func(context.Context, *url.URL) ([]string, error) { return slices.Clone(answer), nil }}
			pools := map[string]Pool{"llm": {Pool: proxy.Pool{Name: "llm", Upstreams: []*url.URL{{Scheme: "http", Host: "a.test:8000", Fragment: "k_each=2"}}}}}
			var log strings.Builder
			run := func(now ...string) {
				answer = now
				for range 10 {
					s.look(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), c, 7, pools)
					time.Sleep(serversEvery)
				}
			}
			run(has)
			run(other, more)
			if c.k(has) != 2 || c.k(other) != -1 || c.k(more) != -1 || strings.Count(log.String(), "of the other kind now") != 1 {
				t.Errorf("the table is %+v; log:\n%s", c.pool.Classes, log.String())
			}
			c.pool.Classes[0].K, c.pool.Classes[0].Tokens, c.pool.K = 0, kmutex.TokenSet{1}, 1 // by command; requests run
			if run(other); c.k(other) != -1 {
				t.Error("it may have its k twice while requests run")
			}
			c.pool.Classes[0].Tokens = nil // none runs
			if run(other); c.k(other) != 2 || c.k(has) > 0 {
				t.Errorf("the table is %+v", c.pool.Classes)
			}
		}
	})
}

// TestServerOfTwoURLs: a server that the pool has under another URL has its k once.
func TestServerOfTwoURLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &tableOnly{t: t, pool: membership.Pool{Name: "llm", K: 1, Epoch: 1, Home: 7, Classes: []membership.Class{{Upstream: server(1) + "/", K: 1}}}}
		s := &servers{lookUp: func(context.Context, *url.URL) ([]string, error) { return []string{server(1), server(2)}, nil }}
		pools := map[string]Pool{"llm": {Pool: proxy.Pool{Name: "llm", Upstreams: []*url.URL{{Scheme: "http", Host: "llm.test:8000", Fragment: "k_each=2"}}}}}
		s.look(t.Context(), slog.New(slog.DiscardHandler), c, 7, pools)
		if c.k(server(1)) != -1 || c.k(server(2)) != 2 {
			t.Errorf("the table is %+v", c.pool.Classes)
		}
	})
}

// TestServersFlap: whatever a name server answers, epochs begin at most once a second, and what all
// answers have is in use.
func TestServersFlap(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			c := &tableOnly{t: t, pool: membership.Pool{Name: "llm", K: 2, Epoch: 1, Home: 7, Classes: []membership.Class{{Upstream: server(1), K: 2, Name: "http://a.test"}}}}
			s := &servers{lookUp: func(context.Context, *url.URL) ([]string, error) {
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
				all := []string{server(1)}
				for i := range 8 {
					if r.IntN(2) == 0 {
						all = append(all, server(i+2))
					}
				}
				return all, nil
			}}
			pool := proxy.Pool{Name: "llm", Transport: proxy.Transport{Resolve: time.Millisecond}}
			for _, host := range []string{"a.test", "b.test"} {
				pool.Upstreams = append(pool.Upstreams, &url.URL{Scheme: "http", Host: host, Fragment: "k_each=2"})
			}
			pools := map[string]Pool{"llm": {Pool: pool}}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() {
				for ctx.Err() == nil {
					s.look(ctx, slog.New(slog.DiscardHandler), c, 7, pools)
					time.Sleep(serversEvery)
				}
			})
			wg.Wait()
			if c.k(server(1)) != 2 || len(c.epochs) < 5 {
				t.Errorf("k %d of the first, %d epochs", c.k(server(1)), len(c.epochs))
			}
		})
	}
}
