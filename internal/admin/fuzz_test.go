package admin_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/admission"
)

// strictTickets fails a test when it gets invalid arguments.
type strictTickets struct{ t *testing.T }

func (s strictTickets) id(id string) {
	if id == "" || len(id) > 64 {
		s.t.Errorf("asked for ticket %q", id)
	}
}

// RequestTicket implements admin.Tickets.
func (s strictTickets) RequestTicket(_ context.Context, req admission.Request, ttl time.Duration, note string) (admission.Ticket, error) {
	if req.Pool == "" || ttl < admission.MinTTL || ttl > admission.MaxTTL || len(note) > admission.MaxNote {
		s.t.Errorf("asked for %+v, %v, %q", req, ttl, note)
	}
	return admission.Ticket{ID: "a-1", Pool: req.Pool, TTL: ttl}, nil
}

// TestTicket implements admin.Tickets.
func (s strictTickets) TestTicket(_ context.Context, id string, _ bool, wait time.Duration) (admission.Ticket, error) {
	s.id(id)
	if wait < 0 || wait > time.Minute {
		s.t.Errorf("waits %v", wait)
	}
	return admission.Ticket{ID: id}, nil
}

// RenewTicket implements admin.Tickets.
func (s strictTickets) RenewTicket(_ context.Context, id string) (admission.Ticket, error) {
	s.id(id)
	return admission.Ticket{ID: id}, nil
}

// EndTicket implements admin.Tickets.
func (s strictTickets) EndTicket(_ context.Context, id string) error {
	s.id(id)
	return nil
}

// FuzzTicketAPI: for any request, the gateway gets only valid arguments, and the client an answer.
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
		h := admin.NewTicketHandler(admin.TicketConfig{Tickets: strictTickets{t}})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code < 200 || w.Code >= 500 {
			t.Errorf("%s %q: %d", method, path, w.Code)
		}
	})
}
