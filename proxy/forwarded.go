package proxy

import (
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// forwarded returns the header Forwarded (RFC 7239) for the upstream: this hop,
// after what a trusted proxy has said of those before it. If that proxy speaks
// only X-Forwarded-For, its addresses are taken over (section 7.4).
func forwarded(r *http.Request, trusted bool) string {
	b := make([]byte, 0, 96)
	if trusted {
		b = appendEarlier(b, r.Header)
	}
	b = append(b, "for="...)
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	b = appendNode(b, host)
	b = append(b, ";host="...)
	b = appendValue(b, r.Host)
	return string(append(append(b, ";proto="...), scheme(r)...))
}

func appendEarlier(b []byte, h http.Header) []byte {
	if lines := h["Forwarded"]; len(lines) > 0 {
		return append(append(b, strings.Join(lines, ", ")...), ", "...)
	}
	for _, line := range h["X-Forwarded-For"] {
		for addr := range strings.SplitSeq(line, ",") {
			b = append(b, "for="...)
			b = appendNode(b, strings.TrimSpace(addr))
			b = append(b, ", "...)
		}
	}
	return b
}

// appendNode appends an address as section 6 writes it, or else "unknown".
func appendNode(b []byte, host string) []byte {
	addr, ok := forwardedAddr(host)
	switch {
	case !ok:
		return append(b, "unknown"...)
	case addr.Is4():
		return addr.AppendTo(b)
	default:
		b = append(b, `"[`...)
		b = addr.AppendTo(b)
		return append(b, `]"`...)
	}
}

// appendValue appends s, in quotes unless it is a token.
func appendValue(b []byte, s string) []byte {
	token := s != ""
	for i := range len(s) {
		token = token && httpguts.IsTokenRune(rune(s[i]))
	}
	if token {
		return append(b, s...)
	}
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ' && c < 0x7f: // others cannot be written, and are in no host
			b = append(b, c)
		}
	}
	return append(b, '"')
}
