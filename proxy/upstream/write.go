package upstream

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
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
func (h *http1Conn) appendRequest(b []byte, req *http.Request) ([]byte, error) {
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	h.target = appendTarget(h.target[:0], req.URL)
	b, err := http1.AppendRequestLine(b, req.Method, h.target)
	if err == nil {
		b, err = http1.AppendHost(b, host)
	}
	if err == nil {
		b = framingOf(req).Append(b)
		b, err = appendTrailerNames(b, req)
	}
	if err == nil {
		b, h.names, err = adapt.AppendHeader(b, req.Header, writtenElsewhere(req), h.names)
	}
	if err != nil {
		return b, invalid(err)
	}
	return append(b, lineBreak...), nil
}

// appendTarget appends what u.RequestURI returns, and mostly needs no memory for it.
func appendTarget(b []byte, u *url.URL) []byte {
	if u.Opaque != "" {
		return append(b, u.RequestURI()...)
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	b = append(b, path...)
	if u.ForceQuery || u.RawQuery != "" {
		b = append(append(b, '?'), u.RawQuery...)
	}
	return b
}

// invalid returns an error of package http1 as an InvalidRequestError.
func invalid(err error) error {
	if errors.As(err, new(http1.Rule)) {
		return &InvalidRequestError{strings.TrimPrefix(err.Error(), "http1: ")}
	}
	return err
}

// writtenElsewhere tells of the fields of a request's header that are not written from it.
func writtenElsewhere(req *http.Request) func(name string) bool {
	return func(name string) bool {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			return true
		case "User-Agent": // an empty one is net/http's way to ask for none
			values := req.Header[name]
			return len(values) == 1 && values[0] == ""
		default:
			return false
		}
	}
}

// isChunked reports whether the body is sent in chunks.
func isChunked(req *http.Request) bool { return hasBody(req) && req.ContentLength <= 0 }

// framingOf returns how a request is framed.
func framingOf(req *http.Request) http1.Framing {
	switch {
	case isChunked(req):
		return http1.Framing{Kind: http1.Chunked}
	case hasBody(req):
		return http1.Framing{Kind: http1.Length, Length: req.ContentLength, Sized: true}
	default: // many servers want a length with these
		return http1.Framing{Sized: req.Method == http.MethodPost || req.Method == http.MethodPut || req.Method == http.MethodPatch}
	}
}

// appendTrailerNames announces the fields that follow the body.
func appendTrailerNames(b []byte, req *http.Request) ([]byte, error) {
	if len(req.Trailer) == 0 || !isChunked(req) {
		return b, nil
	}
	names := slices.Sorted(maps.Keys(req.Trailer))
	for _, name := range names {
		if !httpguts.ValidTrailerHeader(name) || !httpguts.ValidHeaderFieldName(name) {
			return b, &InvalidRequestError{fmt.Sprintf("the field %q may not follow a body", name)}
		}
	}
	return http1.AppendField(b, "Trailer", strings.Join(names, ","))
}
