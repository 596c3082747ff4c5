package library

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate"
	upstreams "github.com/kgate/kgate/test/cluster"
)

// longAnswers is an upstream whose answers, and some of their heads, do not come.
// It counts requests whose connection is open.
func longAnswers(t *testing.T) (judge *upstreams.Judge, url string) {
	t.Helper()
	judge, _, url = upstreams.NewJudge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short" {
			return
		}
		if r.URL.Path != "/silent" {
			_, _ = io.WriteString(w, "some")
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-time.After(patience / 10): // or a test that fails would not end
		}
	}))
	return judge, url
}

// TestReleaseEndsRequests: a slot ends with its request, answered or not, though the program
// has returned the answer and still reads it.
func TestReleaseEndsRequests(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	judge, url := longAnswers(t)
	client := http.Client{Transport: n.Transport(nil)}
	defer client.CloseIdleConnections()
	get := func(path string) (res *http.Response, asked chan struct{}, err error) {
		slot, err := n.Acquire(t.Context(), "p")
		if err != nil {
			return nil, nil, err
		}
		defer slot.Release()
		ctx, _ := slot.Context(t.Context()) // it ends with the slot
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, http.NoBody)
		if err != nil {
			return nil, nil, err
		}
		if path != "/silent" {
			res, err = client.Do(req)
			return res, nil, err
		}
		asked = make(chan struct{})
		_, _, before := judge.Counts()
		go func() {
			defer close(asked)
			if res, err := client.Do(req); !errors.Is(err, kgate.ErrLost) {
				t.Errorf("a request that outlives its slot: %v, %v", res, err)
			}
		}()
		eventually(t, "the request at the upstream", func() bool { _, _, now := judge.Counts(); return now > before })
		return nil, asked, nil
	}
	for range 5 {
		var reading sync.WaitGroup
		for range 5 { // with others
			reading.Go(func() {
				res, _, err := get("/")
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, res.Body); !errors.Is(err, kgate.ErrLost) {
					t.Errorf("an answer is read after its slot's release: %v", err)
				}
				_ = res.Body.Close()
			})
		}
		reading.Wait()
		_, asked, err := get("/silent")
		if err != nil {
			t.Fatal(err)
		}
		soon(t, "its end", asked)
	}
	if _, most, total := judge.Counts(); most != 1 || total != 30 {
		t.Errorf("%d requests, at most %d at the upstream at once, k is 1", total, most)
	}
}

// TestHandlerEndsRequests: so it is with the slot of Middleware when the handler returns.
func TestHandlerEndsRequests(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	judge, url := longAnswers(t)
	client := http.Client{Transport: n.Transport(nil)}
	defer client.CloseIdleConnections()
	addr := serve(t, n, func(_ http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := client.Do(req); err != nil {
			t.Error(err)
		}
	})
	for range 5 {
		res, err := http.Get("http://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	if _, most, total := judge.Counts(); most != 1 || total != 5 {
		t.Errorf("%d requests, at most %d at the upstream at once, k is 1", total, most)
	}
}

// TestOneRequestPerSlot: while a request uses a slot, no second one does; after it, the next
// does.
func TestOneRequestPerSlot(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	judge, url := longAnswers(t)
	client := http.Client{Transport: n.Transport(nil)}
	defer client.CloseIdleConnections()
	slot := acquire(t, n)
	defer slot.Release()
	ctx, cancel := slot.Context(t.Context())
	defer cancel()
	get := func(path string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		return client.Do(req)
	}
	for range 3 {
		res, err := get("/")
		if err != nil {
			t.Fatal(err)
		}
		if second, err := get("/short"); !errors.Is(err, kgate.ErrSlotInUse) {
			t.Errorf("a second request: %v", err)
			if err == nil {
				_ = second.Body.Close()
			}
		}
		_ = res.Body.Close()
		for range 2 {
			if res, err = get("/short"); err != nil {
				t.Fatalf("after the first request's end: %v", err)
			}
			defer res.Body.Close() // an empty answer has ended
		}
	}
	if _, most, _ := judge.Counts(); most != 1 {
		t.Errorf("at most %d at the upstream at once, k is 1", most)
	}
}

// TestContextEndsWithSlot: contexts of a slot that nobody cancels end at its release, and keep
// no goroutines.
func TestContextEndsWithSlot(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	before := runtime.NumGoroutine()
	var last context.Context
	for range 1000 {
		slot := acquire(t, n)
		last, _ = slot.Context(context.Background()) // which nobody ends
		slot.Release()
	}
	soon(t, "the context ends", last.Done())
	if cause := context.Cause(last); !errors.Is(cause, kgate.ErrLost) {
		t.Errorf("it has ended by %v", cause)
	}
	eventually(t, "no goroutines for 1000 contexts", func() bool { return runtime.NumGoroutine() < before+100 })
}
