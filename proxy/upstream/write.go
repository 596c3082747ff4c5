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
)

// InvalidRequestError says why a request cannot be sent. Nothing of it has been
// sent.
type InvalidRequestError struct{ Detail string }

// Error implements error.
func (e *InvalidRequestError) Error() string { return e.Detail }

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
		return e.Detail + ": " + e.Err.Error()
	}
	return e.Detail
}

// Unwrap returns the cause.
func (e *UpgradeError) Unwrap() error { return e.Err }

// appendRequest appends the request line and the header (RFC 9112). How the body
// is framed follows from req.ContentLength and req.Trailer alone, never from
// fields of the header.
func (h *http1Conn) appendRequest(b []byte, req *Request) ([]byte, error) {
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
		b, err = req.Fields.AppendTo(b, isWrittenElsewhere)
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

// isWrittenElsewhere reports whether a field of a request is not written from its fields.
func isWrittenElsewhere(f *http1.Field) bool {
	switch f.ID {
	case http1.Host, http1.ContentLength, http1.TransferEncoding, http1.Trailer:
		return true
	case http1.UserAgent: // an empty one is net/http's way to ask for none
		return f.Value == ""
	default:
		return false
	}
}

// isChunked reports whether the body is sent in chunks.
func isChunked(req *Request) bool { return hasBody(req) && req.ContentLength <= 0 }

// framingOf returns how a request is framed.
func framingOf(req *Request) http1.Framing {
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
func appendTrailerNames(b []byte, req *Request) ([]byte, error) {
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
