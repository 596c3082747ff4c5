package haproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

var errInFlight = errors.New("the number in flight is another")

// Clients that leave while they wait, upload or are served leave nothing
// behind, though tickets live for a minute.
func TestAborted(t *testing.T) {
	const k = 6
	window := 5 * time.Second
	if soak {
		window = 2 * time.Minute
	}
	judge, _, upstream := cluster.NewJudge(t, newUpstream())
	c := cluster.Start(t, cluster.Options{K: k, Upstream: upstream, Name: "abort"})
	all := fleet(t, c, options{upstream: upstream, ttl: 60, wait: 60})
	http1 := newClient(t)
	http2 := newClient(t)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	http2.Transport.(*http.Transport).Protocols = protocols

	ctx, cancel := context.WithTimeout(t.Context(), window)
	defer cancel()
	var served, left atomic.Int64
	var wg sync.WaitGroup
	for i := range 30 * len(all) {
		client, url := http1, all[i%len(all)].url
		if soak && i%2 == 0 { // over HTTP/2, HAProxy 2.6 sees that a client has left late now and then
			client = http2
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				kind := rand.IntN(4)
				if client == http2 {
					// HAProxy 2.6 does not read on from a connection on which an upload
					// waits: the others there could not leave.
					kind = 1 + rand.IntN(3)
				}
				if impatient(t.Context(), client, url, kind) == nil {
					served.Add(1)
				} else {
					left.Add(1)
				}
			}
		})
	}
	wg.Wait()
	for _, h := range all {
		select {
		case <-h.Done():
			t.Errorf("%s has ended:\n%s", h.url, h.Log.Tail(5))
		default:
		}
	}
	// HAProxy 2.6 stops reading some of the connections whose HTTP/2 streams are reset
	// under load: their requests leave with the connection.
	http2.CloseIdleConnections()
	whole(t, c, patience)
	_, most, total := judge.Counts()
	t.Logf("%d requests at the upstream, at most %d at once; %d served in full, %d left", total, most, served.Load(), left.Load())
	if most > k {
		t.Errorf("at most %d in flight, k is %d", most, k)
	}
	if served.Load() == 0 || left.Load() == 0 {
		t.Error("some should be served, and some leave")
	}
}

// impatient sends a request of some kind and leaves after some time.
func impatient(ctx context.Context, c *http.Client, url string, kind int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.ExpFloat64()*float64(200*time.Millisecond)))
	defer cancel()
	switch kind {
	case 0:
		body, w := io.Pipe()
		defer body.Close()
		go func() {
			_, _ = w.Write(make([]byte, 1<<20))
			<-ctx.Done()
			_ = w.CloseWithError(ctx.Err())
		}()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"upload", body)
		if err != nil {
			return err
		}
		res, err := c.Do(req)
		if err != nil {
			return err
		}
		return res.Body.Close()
	case 1:
		return ask(ctx, c, url+"long/stream", false)
	default:
		return ask(ctx, c, url, false)
	}
}

// A HAProxy that is killed loses its slots when their time to live is over; one
// that is replaced by another under load loses nobody.
func TestEnds(t *testing.T) {
	const k, ttl = 2, 2
	judge, _, upstream := cluster.NewJudge(t, newUpstream())
	c := cluster.Start(t, cluster.Options{K: k, Upstream: upstream, Name: "ends"})
	all := fleet(t, c, options{upstream: upstream, ttl: ttl, wait: 60})
	client := newClient(t)

	gone := make(chan error, k)
	for range k {
		go func() { gone <- ask(t.Context(), client, all[0].url+"long/silent", false) }()
	}
	awaitInFlight(t, judge, k)
	killed := time.Now()
	if err := all[0].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := ask(t.Context(), client, all[1].url, false); err != nil {
		t.Fatal(err)
	}
	waited := time.Since(killed)
	t.Logf("all slots were with a HAProxy that was killed: the next request was served after %v", waited.Round(time.Millisecond))
	if waited > 2*ttl*time.Second {
		t.Error("later than its time to live")
	}
	for range k {
		if err := <-gone; err == nil {
			t.Error("a HAProxy that was killed has answered")
		}
	}

	// A slot that it loses would not come back before the end of the test.
	h := start(t, options{admins: []string{c.Gateways[1].Admin}, upstream: upstream, ttl: 60, wait: 60})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var served atomic.Int64
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := ask(t.Context(), client, h.url, false); err != nil {
					t.Errorf("while HAProxy is replaced: %v", err)
					return
				}
				served.Add(1)
			}
		})
	}
	for range 3 {
		time.Sleep(500 * time.Millisecond)
		old := h.Process
		h.launch(t, "-sf", fmt.Sprint(old.PID()))
		if _, err := old.Wait(patience); err != nil {
			t.Error(err)
		}
	}
	cancel()
	wg.Wait()
	t.Logf("%d served, three times by another process", served.Load())
	whole(t, c, 5*time.Second)
	if _, most, _ := judge.Counts(); most > k {
		t.Errorf("at most %d in flight, k is %d", most, k)
	}
}
