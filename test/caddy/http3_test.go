package caddy

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/kgate/kgate/test/cluster"
)

// Clients over HTTP/3 wait as others do, and one that gives up leaves nothing behind, be
// it in line or served.
func TestHTTP3(t *testing.T) {
	const k = 2
	entered, left := make(chan struct{}, 1), make(chan struct{}, 1)
	judge, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hold" {
			time.Sleep(50 * time.Millisecond)
			return
		}
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		entered <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	c := fleet(t, 1, "pool {\n k 2\n }", upstream)[0]
	transport := &http3.Transport{TLSClientConfig: &tls.Config{ServerName: "localhost", InsecureSkipVerify: true}}
	defer transport.Close()
	client := http.Client{Transport: transport, Timeout: patience}
	site := "https://" + c.https + "/"
	ask := func(ctx context.Context, method, path string, body io.Reader) error {
		req, err := http.NewRequestWithContext(ctx, method, site+path, body)
		if err != nil {
			return err
		}
		req.Host = "localhost"
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.ProtoMajor != 3 || res.StatusCode != http.StatusOK {
			t.Errorf("%s over %s", res.Status, res.Proto)
		}
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := cluster.Await(ctx, func() error { return ask(ctx, http.MethodGet, "", http.NoBody) }); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if err := ask(ctx, http.MethodGet, "", http.NoBody); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()

	soon := func(what string, c <-chan struct{}) {
		select {
		case <-c:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
	var ends []context.CancelFunc
	for range k {
		holds, end := context.WithCancel(ctx)
		defer end()
		ends = append(ends, end)
		wg.Go(func() { _ = ask(holds, http.MethodGet, "hold", http.NoBody) })
		soon("a request at the upstream", entered)
	}
	waits, leave := context.WithCancel(ctx)
	defer leave()
	wg.Go(func() { _ = ask(waits, http.MethodPost, "", strings.NewReader("a body that nobody has read")) })
	c.awaitWaiting(t, 1)
	leave()
	t.Logf("out of the line after %v", c.awaitWaiting(t, 0))
	began := time.Now()
	for _, end := range ends {
		end()
		soon("it has left", left)
	}
	if err := ask(ctx, http.MethodGet, "", http.NoBody); err != nil {
		t.Error(err)
	}
	t.Logf("the next one is served %v after those in flight have left", time.Since(began))
	wg.Wait()
	if _, most, total := judge.Counts(); most != k || total < 13 {
		t.Errorf("%d requests, at most %d at once, k is %d", total, most, k)
	}
}
