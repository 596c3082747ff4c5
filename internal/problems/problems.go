// Package problems writes a gateway's error answers, as problem documents (RFC 9457) or as one line of
// text, on the client address and the admin address.
package problems

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// TypeBase is the beginning of every problem's type: a page with a section for each. A document whose
// type begins with it was written by a gateway.
const TypeBase = "https://github.com/kgate/kgate/blob/main/docs/problems.md#"

// Details of a problem. Its keys in JSON are a public interface.
type Details struct {
	// Type is a URI that names the kind of problem. Empty: Write derives it from
	// Reason or else from Status.
	Type string `json:"type"`
	// Title is the status in words; Write fills it in.
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what is wrong, and what to do.
	Detail string `json:"detail"`
	Pool   string `json:"pool,omitempty"`
	// Reason is one of the gateway's words: why a request was refused, or how a
	// ticket ended.
	Reason string `json:"reason,omitempty"`
	// Position is the place in the line when the request came, from 1; 0: it did not wait.
	Position int `json:"position,omitempty"`
	// RetryAfter is in seconds; 0: nothing is said.
	RetryAfter int `json:"retry_after,omitempty"`
	// RequestID is the request's id; empty: it has none.
	RequestID string `json:"request_id,omitempty"`
}

// kinds names the problems that have no reason of their own.
var kinds = map[int]string{
	http.StatusBadRequest:                  "bad-request",
	http.StatusUnauthorized:                "token-needed",
	http.StatusForbidden:                   "forbidden",
	http.StatusNotFound:                    "not-found",
	http.StatusMethodNotAllowed:            "method-not-allowed",
	http.StatusRequestTimeout:              "slow-body",
	http.StatusConflict:                    "conflict",
	http.StatusRequestEntityTooLarge:       "too-large",
	http.StatusUnsupportedMediaType:        "not-json",
	http.StatusMisdirectedRequest:          "foreign-name",
	http.StatusTooManyRequests:             "too-many",
	http.StatusRequestHeaderFieldsTooLarge: "header-too-large",
	http.StatusInternalServerError:         "internal-error",
	http.StatusBadGateway:                  "upstream-failed",
	http.StatusServiceUnavailable:          "unavailable",
	http.StatusGatewayTimeout:              "upstream-timeout",
	http.StatusLoopDetected:                "loop",
}

func (d *Details) complete() {
	d.Title = http.StatusText(d.Status)
	if d.Type != "" {
		return
	}
	switch kind := kinds[d.Status]; {
	case d.Reason != "":
		d.Type = TypeBase + d.Reason
	case kind != "":
		d.Type = TypeBase + kind
	default:
		d.Type = "about:blank"
	}
}

// Write answers a request with d: as problem+json if, by the lines of its Accept, the request accepts
// JSON and does not prefer text; else as one line of text.
func Write(w http.ResponseWriter, accept []string, d Details) {
	if acceptsJSON(accept) {
		WriteJSON(w, d)
		return
	}
	line := fmt.Sprintf("%d %s: %s", d.Status, http.StatusText(d.Status), d.Detail)
	if d.RequestID != "" {
		line += " (request " + d.RequestID + ")"
	}
	WriteLine(w, d.Status, line)
}

// WriteJSON answers with d as problem+json.
func WriteJSON(w http.ResponseWriter, d Details) {
	d.complete()
	body, _ := json.Marshal(d) // strings and integers cannot fail
	WriteBody(w, d.Status, "application/problem+json", append(body, '\n'))
}

// WriteLine answers with one line of text.
func WriteLine(w http.ResponseWriter, status int, line string) {
	WriteBody(w, status, "text/plain; charset=utf-8", []byte(strings.Join(strings.Fields(line), " ")+"\n"))
}

// WriteBody answers with a body that must not be cached.
func WriteBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client is gone
}
