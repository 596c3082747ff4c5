package upstream

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// InvalidRequestError says why a request cannot be sent. Nothing of it has been
// sent.
type InvalidRequestError struct{ Detail string }

// Error implements error.
func (e *InvalidRequestError) Error() string { return "upstream: " + e.Detail }

// UpgradeError says why an upgrade has failed. It may be the client's fault: it is no sign
// that the server fails other requests.
type UpgradeError struct {
	Detail string
	Err    error // the cause, if it is another error; else nil
}

const onlyHTTP2 = "the server seems to speak HTTP/2 only"

// Error implements error.
func (e *UpgradeError) Error() string {
	if e.Err != nil {
		return "upstream: " + e.Detail + ": " + e.Err.Error()
	}
	return "upstream: " + e.Detail
}

// Unwrap returns the cause.
func (e *UpgradeError) Unwrap() error { return e.Err }

// appendRequest appends the request line and the header (RFC 9112). How the body
// is framed follows from req.ContentLength and req.Trailer alone, never from
// fields of the header.
func (h *http1) appendRequest(b []byte, req *http.Request) ([]byte, error) {
	target := req.URL.RequestURI()
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	switch {
	case !isToken(req.Method):
		return b, &InvalidRequestError{fmt.Sprintf("%q is not a method", req.Method)}
	case hasControlOrSpace(target):
		return b, &InvalidRequestError{fmt.Sprintf("the target %q has a control character", target)}
	case !httpguts.ValidHostHeader(host) || strings.ContainsAny(host, " /"):
		return b, &InvalidRequestError{fmt.Sprintf("%q is not a host", host)}
	}
	b = append(b, req.Method...)
	b = append(b, ' ')
	b = append(b, target...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	b = append(b, "\r\n"...)
	var err error
	if b, err = appendFraming(b, req); err != nil {
		return b, err
	}
	h.names = h.names[:0]
	for name := range req.Header {
		h.names = append(h.names, name)
	}
	slices.Sort(h.names) // the same request always looks the same
	for _, name := range h.names {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		case "User-Agent": // an empty one is net/http's way to ask for none
			if values := req.Header[name]; len(values) == 1 && values[0] == "" {
				continue
			}
		}
		if b, err = appendField(b, name, req.Header[name]); err != nil {
			return b, err
		}
	}
	return append(b, "\r\n"...), nil
}

// isChunked reports whether the body is sent in chunks.
func isChunked(req *http.Request) bool { return hasBody(req) && req.ContentLength <= 0 }

// appendFraming appends the fields that say where the body ends.
func appendFraming(b []byte, req *http.Request) ([]byte, error) {
	switch {
	case isChunked(req):
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		return appendTrailerNames(b, req.Trailer)
	case hasBody(req):
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, req.ContentLength, 10)
		return append(b, "\r\n"...), nil
	case req.Method == http.MethodPost || req.Method == http.MethodPut || req.Method == http.MethodPatch:
		return append(b, "Content-Length: 0\r\n"...), nil // many servers want one
	default:
		return b, nil
	}
}

// appendTrailerNames announces the fields that follow the body.
func appendTrailerNames(b []byte, trailer http.Header) ([]byte, error) {
	if len(trailer) == 0 {
		return b, nil
	}
	names := make([]string, 0, len(trailer))
	for name := range trailer {
		if !httpguts.ValidTrailerHeader(name) || !httpguts.ValidHeaderFieldName(name) {
			return b, &InvalidRequestError{fmt.Sprintf("the field %q may not follow a body", name)}
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return append(append(append(b, "Trailer: "...), strings.Join(names, ",")...), "\r\n"...), nil
}

// appendField appends the lines of one field.
func appendField(b []byte, name string, values []string) ([]byte, error) {
	if !httpguts.ValidHeaderFieldName(name) {
		return b, &InvalidRequestError{fmt.Sprintf("%q is not the name of a field", name)}
	}
	for _, v := range values {
		if !httpguts.ValidHeaderFieldValue(v) {
			return b, &InvalidRequestError{fmt.Sprintf("the field %s has a value with control characters", name)}
		}
		b = append(b, name...)
		b = append(b, ": "...)
		b = append(b, v...)
		b = append(b, "\r\n"...)
	}
	return b, nil
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool { return s != "" && httpguts.ValidHeaderFieldName(s) }

// hasControlOrSpace reports whether s would end the request line, or one of its
// parts, early.
func hasControlOrSpace(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return true
		}
	}
	return s == ""
}
