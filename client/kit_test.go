package client

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/admin/admintest"
	"github.com/kgate/kgate/internal/admission"
)

// network is some gateways, by host, that all have the same tickets. It carries
// requests without sockets, so that the tests run on virtual time.
type network struct {
	t       *testing.T
	memory  *admintest.Tickets
	handler http.Handler

	mu    sync.Mutex
	state map[string]string // host -> "" in order, down, silent, mute
	calls []string
}

func newNetwork(t *testing.T, k int) *network {
	m := admintest.NewTickets(map[string]int{"p": k})
	h := admin.NewTicketHandler(admin.TicketConfig{Tickets: m})
	return &network{t: t, memory: m, handler: h, state: make(map[string]string)}
}

func (n *network) set(host, state string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state[host] = state
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	state := n.state[r.URL.Host]
	n.calls = append(n.calls, r.Method+" "+r.URL.Host)
	n.mu.Unlock()
	switch state {
	case "down":
		return nil, http.ErrServerClosed
	case "silent":
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r)
	if state == "mute" { // does it and does not say so
		return nil, http.ErrServerClosed
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

func (n *network) count(prefix string) (calls int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.calls {
		if strings.HasPrefix(c, prefix) {
			calls++
		}
	}
	return calls
}

func (n *network) client(change func(*Config)) *Client {
	cfg := Config{Admins: []string{"http://a", "http://b"}, TTL: 30 * time.Second, HTTPClient: &http.Client{Transport: n}}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// want checks how many tickets hold slots and wait.
func (n *network) want(granted, waiting int) {
	n.t.Helper()
	if g, w := n.memory.Count("p"); g != granted || w != waiting {
		n.t.Errorf("%d granted, %d waiting; want %d and %d", g, w, granted, waiting)
	}
}

// dropWaiting takes their places away from all that wait.
func (n *network) dropWaiting() { n.memory.DropWaiting("p", admission.EndLost) }

// delayed gives answers back late.
type delayed struct {
	*network
	back atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (d *delayed) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.network.RoundTrip(r)
	if err == nil && !pause(r.Context(), time.Duration(d.back.Load())) {
		resp.Body.Close()
		return nil, r.Context().Err()
	}
	return resp, err
}
