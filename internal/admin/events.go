package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

const (
	// eventEvery is how often a waiting ticket's place is told, if it has changed.
	eventEvery = time.Second
	// eventBeat is how long a stream is silent before a comment shows that it is
	// alive.
	eventBeat = 15 * time.Second
)

// events streams what becomes of a ticket as server-sent events: waiting, as
// often as its place changes, granted, and at last gone. To watch a waiting
// ticket keeps it alive; a granted one has to be renewed.
func (h *ticketHandler) events(w http.ResponseWriter, r *http.Request) {
	id, ok := h.ticketID(w, r)
	if !ok || !h.beginPoll(w, r) {
		return
	}
	defer h.polls.Add(-1)
	t, err := h.Tickets.TestTicket(r.Context(), id, false, 0)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	s := eventStream{w: w, c: http.NewResponseController(w)}
	told := s.send(string(t.State()), t)
	for quiet := time.Duration(0); told == nil; {
		wait := eventEvery
		if t.Granted {
			wait = eventBeat
		}
		extend(w, wait+writeFor)
		next, err := h.Tickets.TestTicket(r.Context(), id, t.Granted, wait)
		var ended *admission.EndedError
		switch {
		case errors.As(err, &ended):
			_ = s.send("gone", map[string]admission.Ending{"reason": ended.How}) // it is the last word
			return
		case err != nil:
			return // the client comes back, here or at another gateway
		case next.Granted != t.Granted || next.Position != t.Position:
			told = s.send(string(next.State()), next)
			quiet = 0
		case quiet+wait >= eventBeat:
			told = s.comment()
			quiet = 0
		default:
			quiet += wait
		}
		t = next
	}
}

// eventStream writes server-sent events.
type eventStream struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (s eventStream) send(event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, text); err != nil {
		return err
	}
	return s.c.Flush()
}

func (s eventStream) comment() error {
	if _, err := fmt.Fprint(s.w, ":\n\n"); err != nil {
		return err
	}
	return s.c.Flush()
}
