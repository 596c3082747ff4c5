package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// eventEvery is how often a waiting ticket's place is sent, if it has changed.
	eventEvery = time.Second
	// eventBeat is how long a stream is silent before a comment shows that it is
	// alive.
	eventBeat = 15 * time.Second
)

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

// extend gives an answer more time than the server does.
func extend(w http.ResponseWriter, d time.Duration) {
	// A connection without a deadline has none to extend.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}
