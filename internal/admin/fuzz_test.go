package admin_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
)

// strictTickets fails a test when it is asked for what cannot be.
type strictTickets struct{ t *testing.T }

func (s strictTickets) id(id string) {
	if id == "" || len(id) > 64 {
		s.t.Errorf("asked for ticket %q", id)
	}
}

// Request implements admin.Tickets.
func (s strictTickets) Request(_ context.Context, q admin.TicketRequest) (admin.Ticket, error) {
	if q.Pool == "" || q.TTL < admin.MinTTL || q.TTL > admin.MaxTTL || len(q.Note) > admin.MaxNote {
		s.t.Errorf("asked for %+v", q)
	}
	return admin.Ticket{ID: "a-1", Pool: q.Pool, State: admin.TicketWaiting, TTL: q.TTL}, nil
}

// Test implements admin.Tickets.
func (s strictTickets) Test(_ context.Context, id string, _ admin.TicketState, wait time.Duration) (admin.Ticket, error) {
	s.id(id)
	if wait < 0 || wait > time.Minute {
		s.t.Errorf("waits %v", wait)
	}
	return admin.Ticket{ID: id}, nil
}

// Renew implements admin.Tickets.
func (s strictTickets) Renew(_ context.Context, id string) (admin.Ticket, error) {
	s.id(id)
	return admin.Ticket{ID: id}, nil
}

// End implements admin.Tickets.
func (s strictTickets) End(_ context.Context, id string) error {
	s.id(id)
	return nil
}

// FuzzTicketAPI: whatever is asked, the gateway is asked for what can be, and the
// client has an answer.
func FuzzTicketAPI(f *testing.F) {
	for _, body := range []string{
		`{"pool":"p","ttl":"30s","note":"me"}`, `{"pool":"p","ttl":-1}`, `{"pool":"p","ttl":"9999999h"}`, `{"pool":"p"} {}`,
		`{"pool":"p","nope":1}`, "[", "", `{"pool":"\u0000","note":"` + strings.Repeat("x", 300) + `"}`,
	} {
		f.Add("POST", at, body)
	}
	f.Add("GET", at+"/a-1?wait=30s", "")
	f.Add("GET", at+"/a-1?wait=-1h", "")
	f.Add("PUT", at+"/"+strings.Repeat("a", 100), "")
	f.Add("DELETE", at+"/%00", "x")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		if err != nil || strings.HasSuffix(r.URL.Path, "/events") { // which goes on until its client leaves
			return
		}
		r.Host, r.RemoteAddr = "127.0.0.1:9080", "127.0.0.1:40000"
		r.Header.Set("Content-Type", "application/json")
		h, err := admin.NewTicketHandler(admin.TicketConfig{Tickets: strictTickets{t}})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code < 200 || w.Code >= 500 {
			t.Errorf("%s %q: %d", method, path, w.Code)
		}
	})
}
