package haproxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// link leads to a gateway's admin address until it is cut.
type link struct {
	cut  atomic.Bool
	addr string
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l := &link{}
	// Without X-Forwarded-For: changes come from this machine.
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: to}) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	l.addr = s.Listener.Addr().String()
	return l
}

// ask sends a request and returns when its answer has ended; an answer that is not
// a success is an error.
func ask(ctx context.Context, c *http.Client, url string, upgrade bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	if upgrade {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "test")
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s, Kgate-Refusal %q", res.Status, res.Header.Get("Kgate-Refusal"))
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// A ticket that no gateway renews is lost in the middle of its request. The
// script has HAProxy break the request off before the slot is somebody else's.
// Without HAProxy's admin socket the request goes on: the upstream sees it beside the
// next one for as long as it lasts.
func TestLost(t *testing.T) {
	const ttl = 4 * time.Second
	cluster.Need(t, "haproxy", "haproxy")
	for _, test := range []struct {
		name, path string
		blind      bool
	}{
		{"Unanswered", "long/unanswered", false},
		{"Silent", "long/silent", false},
		{"Stream", "long/stream", false},
		{"WebSocket", "long/socket", false},
		{"WithoutSocket", "long/stream", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			judge, _, upstream := cluster.NewJudge(t, newUpstream())
			judge.Keep()
			c := cluster.Start(t, cluster.Options{K: 1, Gateways: 1, Upstream: upstream, Name: "lost"})
			l := newLink(t, c.Gateways[0].Admin)
			first := start(t, options{admins: []string{l.addr}, upstream: upstream, ttl: 4, wait: 60, blind: test.blind})
			second := start(t, options{admins: []string{c.Gateways[0].Admin}, upstream: upstream, ttl: 4, wait: 60})
			client := newClient(t)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan time.Time, 1)
			go func() {
				_ = ask(ctx, client, first.url+test.path, test.name == "WebSocket") // broken off
				ended <- time.Now()
			}()
			awaitInFlight(t, judge, 1)
			time.Sleep(ttl / 2) // a renewal or two
			l.cut.Store(true)
			cut := time.Now()
			if err := ask(t.Context(), client, second.url, false); err != nil {
				t.Fatal(err)
			}
			arrivals := judge.Since(cut)
			if len(arrivals) != 1 {
				t.Fatalf("%d requests came to the upstream since, want 1", len(arrivals))
			}
			next := arrivals[0].At.Sub(cut)
			t.Logf("the next request came %v after the cut", next.Round(time.Millisecond))
			if next > 5*time.Second {
				t.Error("later than after 1.1 times to live and 0.15 s")
			}
			if test.blind {
				if arrivals[0].InFlight != 2 || len(ended) != 0 {
					t.Errorf("%d in flight, want the lost one, too", arrivals[0].InFlight)
				}
				cancel()
				<-ended
			} else {
				at := (<-ended).Sub(cut)
				t.Logf("the lost one was broken off %v after the cut", at.Round(time.Millisecond))
				if at > next || arrivals[0].InFlight != 1 {
					t.Errorf("%d in flight, k is 1; the lost one ended %v after the next one came", arrivals[0].InFlight, at-next)
				}
			}
			l.cut.Store(false)
			whole(t, c, 5*time.Second)
		})
	}
}

func awaitInFlight(t *testing.T, judge *cluster.Judge, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := cluster.Await(ctx, func() error {
		if now, _, _ := judge.Counts(); now != n {
			return errInFlight
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
