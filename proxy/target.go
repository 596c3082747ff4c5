package proxy

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/kgate/kgate/proxy/http1"
)

// What a request asks for is judged in the same form in which it is sent on: that of
// http.Request.URL, once canonical and judgeTarget have seen it. Routes, logs and the
// ticket API go by its Path, the upstream gets its EscapedPath, and each of them is the
// other one decoded, or encoded. The query goes on as it came: the gateway gives it no
// meaning.

// canonical gives the request the path that is judged and sent on: an empty one is
// "/" (RFC 9110, section 4.2.3), and bytes that may not stand in a path, such as those of
// UTF-8, are percent-encoded. What was encoded stays so: %2F may mean something else than a
// slash to the upstream.
func canonical(r *http1.Request) {
	if r.URL.Path == "" && r.URL.Opaque == "" {
		r.URL.Path = "/"
	}
	r.URL.RawPath = encodeBytes(r.URL.RawPath)
}

// encodeBytes percent-encodes the bytes of an encoded path that may not stand in one (RFC
// 3986, section 3.3). Brackets may for net/url.
func encodeBytes(path string) string {
	const hex, marks = "0123456789ABCDEF", "-._~!$&'()*+,;=:@[]/%"
	var b []byte
	for i := range len(path) {
		c := path[i]
		fine := '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || strings.IndexByte(marks, c) >= 0
		if !fine && b == nil {
			b = append(make([]byte, 0, len(path)+8), path[:i]...)
		}
		switch {
		case !fine:
			b = append(b, '%', hex[c>>4], hex[c&0xf])
		case b != nil:
			b = append(b, c)
		}
	}
	if b == nil {
		return path
	}
	return string(b)
}

// judgeTarget says why a request's target must not be routed; "" if it may. The host and the
// path that routes see have to be those that the upstream finds.
func judgeTarget(r *http1.Request) (wrong string) {
	u := &r.URL
	switch {
	case u.Opaque != "", u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https":
		return "the request target is neither a path nor an http or https URL"
	case u.Scheme != "" && r.Major > 1: // RFC 9113, section 8.3.1: the host stands in :authority, and would stand here, too
		return "the request target is not a path"
	case hostname(r.Host) == "" && (r.Host != "" || r.AtLeast(1, 1)): // HTTP/1.0 may name none
		return "the Host header is not a host, or a host and a port"
	case isOfServer(r):
	case u.Path[0] != '/': // "*" is for OPTIONS alone; and a program may have cut the path
		return "the path does not begin with a slash"
	case hasDotSegment(u.Path):
		return `the path contains "." or ".." segments`
	}
	return ""
}

// isCapitals reports whether a method has no small letters. No registered one has, and some
// upstreams take "put" for PUT, for which there may be another route.
func isCapitals(method string) bool { return method == strings.ToUpper(method) }

// isOfServer reports whether the request is OPTIONS for "*": it asks what the server can, and
// has no path.
func isOfServer(r *http1.Request) bool { return r.Method == http.MethodOptions && r.URL.Path == "*" }

// judgeHTTP2 says why a request over HTTP/2 must not be routed, though net/http takes it: there
// it judges lengths and hosts less strictly than in HTTP/1.
func judgeHTTP2(r *http1.Request) (wrong string) {
	if r.Major < 2 {
		return ""
	}
	if hosts := r.Fields.Values("Host"); len(hosts) > 1 || len(hosts) == 1 && !strings.EqualFold(hosts[0], r.Host) {
		return "the request names two hosts"
	}
	if lengths := r.Fields.Values("Content-Length"); len(lengths) > 0 {
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if len(lengths) > 1 || err != nil || int64(n) != r.Length {
			return "the length of the body is in doubt"
		}
	}
	return ""
}

// hostname returns the host of a Host header in lower case, without its port, an IPv6
// address's brackets and a final dot; "" if it is something else. Upstreams differ in what
// they take for the host of "a:80:80".
func hostname(host string) string {
	name, port := host, ""
	if end := strings.LastIndexByte(host, ']'); end > 0 && host[0] == '[' {
		name, port = host[1:end], host[end+1:]
	} else if i := strings.IndexByte(host, ':'); i >= 0 {
		name, port = host[:i], host[i:]
	}
	if port != "" && (port[0] != ':' || strings.Trim(port[1:], "0123456789") != "") {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// cutPathPrefix returns what follows prefix in the decoded path, and whether path
// begins with it. Upstreams differ in what they take for the same path; whatever one
// of them may read as prefix does count, lest such a path slip past the route, and
// so past the pool: a run of slashes for one, a backslash for a slash, and segments
// with parameters (";a=b") for those without, the empty one of "/;a=b/" too.
func cutPathPrefix(path, prefix string) (rest string, ok bool) {
	i := 0
	for j := range len(prefix) {
		if i < len(path) && path[i] == ';' && prefix[j] != ';' {
			i = afterSegment(path, i)
		}
		switch {
		case i == len(path):
			return "", false
		case prefix[j] == '/' && isSlash(path[i]):
			i = afterSlashes(path, i)
			for j+1 < len(prefix) && prefix[j+1] != ';' && i < len(path) && path[i] == ';' {
				i = afterSlashes(path, afterSegment(path, i))
			}
		case prefix[j] == path[i]:
			i++
		default:
			return "", false
		}
	}
	return path[i:], true
}

// afterSlashes returns where a run of slashes at i ends.
func afterSlashes(path string, i int) int {
	for i < len(path) && isSlash(path[i]) {
		i++
	}
	return i
}

// afterSegment returns where the segment ends in which i lies.
func afterSegment(path string, i int) int {
	for i < len(path) && !isSlash(path[i]) {
		i++
	}
	return i
}

func isSlash(c byte) bool { return c == '/' || c == '\\' }

// hasDotSegment reports whether the decoded path has a segment "." or "..", with
// parameters or without. Clients resolve them before they send (RFC 3986, section
// 5.2.4), so one that arrives here is meant to be read differently by gateway and
// upstream, for example to reach "/files/" through the free route "/free/../files/".
func hasDotSegment(path string) bool {
	for i := 0; i < len(path); i++ {
		if path[i] != '.' || i > 0 && !isSlash(path[i-1]) {
			continue
		}
		end := i + 1
		if end < len(path) && path[end] == '.' {
			end++
		}
		if end == len(path) || isSlash(path[end]) || path[end] == ';' {
			return true
		}
	}
	return false
}

// stripPrefix takes prefix off the path, if the path begins with it and a segment ends
// there. Else "/free" of "/free../x" would leave "/../x".
func stripPrefix(u *url.URL, prefix string) {
	rest, ok := cutPathPrefix(u.Path, prefix)
	if !ok || rest != "" && rest[0] != ';' && !isSlash(rest[0]) && !strings.HasSuffix(prefix, "/") {
		return
	}
	encoded := u.EscapedPath()
	for range len(u.Path) - len(rest) { // each is one byte, or three
		encoded = encoded[encodedLen(encoded):]
	}
	if rest != "" && rest[0] == '/' {
		rest, encoded = rest[1:], encoded[encodedLen(encoded):]
	}
	u.Path, u.RawPath = "/"+rest, "/"+encoded
}

// encodedLen returns the length of the first byte of an encoded path.
func encodedLen(encoded string) int {
	if encoded[0] == '%' {
		return len("%2F")
	}
	return 1
}

// joinPath puts base's path before to's.
func joinPath(base, to *url.URL) {
	if base.RawPath == "" && to.RawPath == "" {
		to.Path = oneSlash(base.Path, to.Path)
		return
	}
	to.RawPath = oneSlash(base.EscapedPath(), to.EscapedPath())
	to.Path, _ = url.PathUnescape(to.RawPath) // both are encoded
}

func oneSlash(a, b string) string {
	return strings.TrimSuffix(a, "/") + "/" + strings.TrimPrefix(b, "/")
}
