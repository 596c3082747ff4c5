package problems

import (
	"strconv"
	"strings"

	"github.com/kgate/kgate/internal/httplist"
)

// acceptsJSON reports whether the client accepts JSON and does not prefer text. A browser, which names
// text/html first and everything else last, gets the line.
func acceptsJSON(accept []string) bool {
	if len(accept) == 0 {
		return true
	}
	var jsonQ, textQ quality
	for item := range httplist.Elements(accept) {
		params := httplist.Parameters(item)
		q := weight(params[1:])
		switch strings.ToLower(params[0]) {
		case "application/problem+json":
			jsonQ.see(3, q)
		case "application/json":
			jsonQ.see(2, q)
		case "application/*":
			jsonQ.see(1, q)
		case "text/plain", "text/html":
			textQ.see(2, q)
		case "text/*":
			textQ.see(1, q)
		case "*/*":
			jsonQ.see(0, q)
			textQ.see(0, q)
		}
	}
	return jsonQ.q > 0 && jsonQ.q >= textQ.q
}

// Wants reports whether, by the lines of Accept, a body of this type may replace Write's line of text.
// HTML must be named.
func Wants(accept []string, mediaType string) bool {
	return !acceptsJSON(accept) && (mediaType != "text/html" || AcceptsHTML(accept))
}

// quality is the weight of the most specific media range seen so far.
type quality struct {
	specificity int
	q           float64
	seen        bool
}

func (s *quality) see(specificity int, q float64) {
	switch {
	case !s.seen || specificity > s.specificity:
		*s = quality{specificity: specificity, q: q, seen: true}
	case specificity == s.specificity:
		s.q = max(s.q, q)
	}
}

// weight returns the weight among a media range's parameters; 1 if there is none, 0
// if it is malformed.
func weight(params []string) float64 {
	for _, param := range params {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return q
	}
	return 1
}

// AcceptsHTML reports whether the client names HTML, as browsers do for a page to show, and prefers no
// type for programs.
func AcceptsHTML(accept []string) bool {
	var html, json quality
	for item := range httplist.Elements(accept) {
		params := httplist.Parameters(item)
		switch kind := strings.ToLower(params[0]); {
		case kind == "text/html":
			html.see(0, weight(params[1:]))
		case strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "json"):
			json.see(0, weight(params[1:]))
		}
	}
	return html.q > 0 && html.q >= json.q
}
