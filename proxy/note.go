package proxy

import (
	"net"
	"net/http"
)

// noteOf describes a request. It keeps what the request has anyway: nothing is
// copied.
func noteOf(r *http.Request) Note {
	n := Note{Method: r.Method, Path: r.URL.Path, Remote: r.RemoteAddr, Trace: traceID(r.Header)}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		n.Remote = host
	}
	return n
}

// traceID returns the id of the trace that a request says it belongs to, in the
// form of W3C's trace context: version-trace-parent-flags.
func traceID(h http.Header) string {
	const (
		begin, size = 3, 32
		least       = begin + size + len("-0123456789abcdef-00")
	)
	values := h["Traceparent"]
	if len(values) != 1 || len(values[0]) < least {
		return ""
	}
	parent := values[0]
	id := parent[begin : begin+size]
	if parent[begin-1] != '-' || parent[begin+size] != '-' {
		return ""
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	return id
}
