package proxy

import (
	"net"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/kgate/kgate/proxy/http1"
)

// hop is what Forwarded said of the last request of a connection: of the next one it says the same
// as a rule.
type hop struct{ host, forwarded string }

// forwarded is the function of this name, with a memory.
func (ex *exchange) forwarded(in *http1.Request, trusted bool) string {
	if trusted || ex.conn == nil || !ex.http1 {
		return forwarded(in, trusted)
	}
	last, _ := ex.conn.Memo.(*hop)
	if last == nil || last.host != in.Host {
		last = &hop{strings.Clone(in.Host), forwarded(in, trusted)} // not the head, of which Host is a part
		ex.conn.Memo = last
	}
	return last.forwarded
}

// forwarded returns the header Forwarded (RFC 7239) for the upstream: this hop,
// after what a trusted proxy has said of those before it. If that proxy speaks
// only X-Forwarded-For, its addresses are taken over (section 7.4).
func forwarded(r *http1.Request, trusted bool) string {
	b := make([]byte, 0, 96)
	if trusted {
		b = appendEarlier(b, r.Fields)
	}
	b = append(b, "for="...)
	host, _, _ := net.SplitHostPort(r.Remote)
	b = appendNode(b, host)
	b = append(b, ";host="...)
	b = appendValue(b, r.Host)
	return string(append(append(b, ";proto="...), scheme(r)...))
}

func appendEarlier(b []byte, fields http1.Fields) []byte {
	if lines := fields.Values("Forwarded"); len(lines) > 0 {
		return append(append(b, strings.Join(lines, ", ")...), ", "...)
	}
	for _, line := range fields.Values("X-Forwarded-For") {
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
