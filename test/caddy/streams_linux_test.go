package caddy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// upstreams over HTTP/2.
var upstreams = map[string]bool{"https": true, "h2c": false}

// Upstreams over HTTP/2 are shared as others are.
func TestFairStreams(t *testing.T) {
	const k = 6
	for name, secure := range upstreams {
		t.Run(name, func(t *testing.T) {
			x, _ := cluster.NewUnequal(t, k)
			judge, upstream := serveStreams(t, k, secure, x.Handler())
			var urls []string
			for _, c := range fleet(t, 3, "pool {\n k 6\n }", upstream) {
				urls = append(urls, c.url())
			}
			x.Run(t, urls, time.Duration(cluster.Count(t, "KGATE_CADDY_SECONDS", 15, 15))*time.Second, 0.03)
			if open, most, total := judge.counts(); most != k || open != 0 {
				t.Errorf("of %d streams at most %d were open at once, %d still are; k is %d", total, most, open, k)
			}
		})
	}
}

// Clients leave in line, while they upload and while they download; the upstream answers
// early and breaks off. Caddys reload, are killed and stopped. At no time are more than k
// streams open, and none stays.
func TestStreams(t *testing.T) {
	for name, secure := range upstreams {
		for _, k := range []int{6, 1} {
			t.Run(fmt.Sprintf("%s, k is %d", name, k), func(t *testing.T) {
				pool := fmt.Sprintf("pool {\n k %d\n }", k)
				judge, upstream := serveStreams(t, k, secure, http.HandlerFunc(restless))
				all := fleet(t, 3, pool, upstream)
				transport := &http.Transport{TLSClientConfig: &tls.Config{ServerName: "localhost", InsecureSkipVerify: true}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 20}
				defer transport.CloseIdleConnections()
				client := &http.Client{Transport: transport}
				https := make(map[string]string)
				for _, c := range all {
					https[c.name] = "https://" + c.https + "/"
				}
				// What a Caddy that is stopped has open nobody ends: so only short ones.
				short := cluster.StartLoad(t, gatewaysOf(all), cluster.LoadOptions{Clients: 6})
				time.Sleep(time.Second)
				if err := all[1].Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if err := all[1].Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				if err := cluster.Await(t.Context(), func() error { return all[1].ask(t.Context()) }); err != nil {
					t.Error(err)
				}
				short.Stop()
				_, most, total := judge.counts()
				t.Logf("one is stopped: %d streams, at most %d at once", total, most)

				load := cluster.StartLoad(t, gatewaysOf(all), cluster.LoadOptions{Clients: 12, Ask: func(ctx context.Context, g *cluster.Gateway) error {
					url := g.URL()
					if rand.IntN(2) == 0 {
						url = https[g.Name]
					}
					return visit(ctx, client, url)
				}})
				for range 3 {
					time.Sleep(1500 * time.Millisecond)
					if err := all[0].load(t, pool); err != nil {
						t.Error(err)
					}
				}
				_, most, total = judge.counts()
				t.Logf("reloads: %d streams, at most %d at once", total, most)
				if err := all[2].Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				time.Sleep(6 * time.Second)
				load.Stop()
				left := time.Now()
				if err := cluster.Await(t.Context(), func() error {
					if open, _, _ := judge.counts(); open > 0 {
						return errors.New("streams are open")
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
				var open int
				open, most, total = judge.counts()
				t.Logf("%d streams, at most %d at once; %d were answered; all were closed %v after the clients had left", total, most, len(load.Since(time.Time{})), time.Since(left).Round(time.Millisecond))
				if most != k || total < 100 || open != 0 {
					t.Errorf("of %d streams at most %d were open at once, %d still are; k is %d", total, most, open, k)
				}
			})
		}
	}
}

// restless is an upstream that answers in many ways.
func restless(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w).Flush
	switch r.URL.Path {
	case "/hang":
		<-r.Context().Done()
	case "/endless":
		for r.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 1000))
			_ = flush()
			time.Sleep(time.Millisecond)
		}
	case "/early":
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	case "/enough": // a whole answer, and the rest of the request is not wanted
		_, _ = io.WriteString(w, "enough")
	case "/broken":
		_ = flush()
		panic(http.ErrAbortHandler)
	default:
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(rand.N(10 * time.Millisecond))
	}
}

// visit asks in one of many ways.
func visit(ctx context.Context, client *http.Client, url string) error {
	path := []string{"", "", "", "hang", "endless", "early", "enough", "broken", "upload"}[rand.IntN(9)]
	method, body := http.MethodGet, io.Reader(http.NoBody)
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	leaves := path == "hang" || path == "endless" || rand.IntN(4) == 0
	if leaves {
		ctx, cancel = context.WithTimeout(ctx, rand.N(200*time.Millisecond))
		defer cancel()
	}
	switch path {
	case "early", "enough", "upload":
		method = http.MethodPost
		from, to := io.Pipe()
		body = from // of no known length
		go func() {
			_, _ = to.Write(make([]byte, rand.IntN(300_000)))
			if leaves { // in the middle
				<-ctx.Done()
			}
			_ = to.CloseWithError(ctx.Err())
		}()
		defer from.Close()
		defer context.AfterFunc(ctx, func() { _ = from.CloseWithError(ctx.Err()) })()
	}
	req, err := http.NewRequestWithContext(ctx, method, url+path, body)
	if err != nil {
		return err
	}
	if method == http.MethodPost && rand.IntN(3) == 0 {
		req.Header.Set("Expect", "100-continue")
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}
