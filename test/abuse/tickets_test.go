package abuse

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// TestAnonymousTickets: whoever reaches the client address takes neither the line nor
// a slot with tickets: so many and no more, and each slot for no longer than a
// request may have one.
func TestAnonymousTickets(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	const (
		k       = 2
		limit   = 20 // by default
		holdMax = 2 * time.Second
	)
	u := &turnstile{hold: time.Millisecond}
	_, _, url := cluster.NewJudge(t, u)
	c := cluster.Start(t, cluster.Options{
		Gateways: 1, K: 1, Upstream: url,
		Pools: []cluster.Pool{{Name: "open", K: k, Upstream: url, Settings: fmt.Sprintf("tickets: true, hold: {max: %v, idle: 1s}", holdMax)}},
	})
	g := c.Gateways[0]
	hog := from(t, "127.0.2.1")
	if status, body := call(t, hog, "POST", g, "", `{"pool": "open", "ttl": "10m"}`); status != 400 || !strings.Contains(body, "1m0s") {
		t.Errorf("a ttl of ten minutes: %d %s", status, body)
	}
	var ids []string
	began := time.Now()
	for range 10 * limit {
		status, body := call(t, hog, "POST", g, "", `{"pool": "open", "ttl": "1m"}`)
		var ticket struct{ ID string }
		switch {
		case status == http.StatusTooManyRequests:
		case status == http.StatusCreated && json.Unmarshal([]byte(body), &ticket) == nil:
			ids = append(ids, ticket.ID)
		default:
			t.Fatalf("%d %s", status, body)
		}
	}
	t.Logf("%d tickets asked for in %v: %d given", 10*limit, time.Since(began).Round(time.Millisecond), len(ids))
	if over := k * int(time.Since(began)/holdMax); len(ids) < limit || len(ids) > limit+over { // the first may be over
		t.Errorf("one client got %d tickets, want %d, and %d for those whose hold is over", len(ids), limit, over)
	}
	// An honest client comes in as soon as the slots' time is over, however often the
	// hog renews its tickets.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		for {
			for _, id := range ids {
				req, _ := http.NewRequestWithContext(ctx, http.MethodPut, g.URL()+".kgate/tickets/"+id, nil)
				res, err := hog.Do(req)
				if err != nil {
					done <- nil
					return
				}
				_ = res.Body.Close()
			}
			time.Sleep(holdMax / 30)
		}
	}()
	honest := from(t, "127.0.3.1")
	res, err := honest.Get(g.URL() + "open/")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	took := time.Since(began)
	stop()
	must(t, <-done)
	// Before it there are the hog's, k at a time.
	if most := limit/k*holdMax + patience; res.StatusCode != 200 || took > most {
		t.Errorf("the honest client got %d after %v", res.StatusCode, took)
	}
	t.Logf("the honest client, behind %d tickets that are renewed, got its answer after %v", limit, took.Round(time.Millisecond))
	status, body := call(t, hog, "PUT", g, ids[0], "")
	if status != http.StatusGone || !strings.Contains(body, `"hold-max"`) {
		t.Errorf("the first ticket: %d %s", status, body)
	}
	wholeAgain(t, g, "open", k)
}

// call sends a request to the ticket API on the client address.
func call(t *testing.T, client *http.Client, method string, g *cluster.Gateway, id, body string) (status int, answer string) {
	t.Helper()
	path := g.URL() + ".kgate/tickets"
	if id != "" {
		path += "/" + id
	}
	req, err := http.NewRequestWithContext(t.Context(), method, path, bytes.NewBufferString(body))
	must(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(fmt.Errorf("%s %s: %w", method, path, err))
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, string(got)
}
