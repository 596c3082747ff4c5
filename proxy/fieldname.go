package proxy

import (
	"io"
	"maps"
	"net/http"
	"strings"
)

// Two names of fields are one to a server that makes CGI variables of them: neither case
// counts there, nor what stands between the words. Most servers take an underscore for a
// hyphen, some any byte that is no letter or digit.

// sameName reports whether the names are one to some server.
func sameName(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && variableByte(a[i]) != variableByte(b[i]) {
			return false
		}
	}
	return true
}

// hasNamePrefix reports whether a server may read name as a name that begins with prefix.
func hasNamePrefix(name, prefix string) bool {
	return len(name) >= len(prefix) && sameName(name[:len(prefix)], prefix)
}

// variableByte returns what a byte of a name is in the name of a variable.
func variableByte(c byte) byte {
	switch {
	case 'a' <= c && c <= 'z':
		return c - 'a' + 'A'
	case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return c
	default:
		return '_'
	}
}

// isPlain reports whether only letters, digits and hyphens are in a name.
func isPlain(name string) bool {
	for i := range len(name) {
		if name[i] != '-' && variableByte(name[i]) == '_' {
			return false
		}
	}
	return true
}

func isKgate(name string) bool { return hasNamePrefix(name, "Kgate-") }

// RemoveForbidden removes from a request what only a gateway says: the fields Kgate-* of its
// header and of its trailer, however they are spelled. So it does with an Upgrade to another
// kind of HTTP. It changes *r, but none of its maps.
func RemoveForbidden(r *http.Request) {
	if switchesHTTP(strings.Join(r.Header["Upgrade"], ", ")) {
		r.Header = maps.Clone(r.Header)
		delete(r.Header, "Upgrade")
		delete(r.Header, "Http2-Settings")
	}
	for name := range r.Header {
		if isKgate(name) {
			r.Header = withoutKgate(r.Header)
			break
		}
	}
	if r.Trailer == nil {
		return
	}
	came := r.Trailer
	r.Trailer = withoutKgate(came)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &bodyBeforeTrailer{ReadCloser: r.Body, came: came, kept: r.Trailer}
	}
}

func withoutKgate(h http.Header) http.Header {
	h = maps.Clone(h)
	maps.DeleteFunc(h, func(name string, _ []string) bool { return isKgate(name) })
	return h
}

// bodyBeforeTrailer is a body with a trailer, whose values come with the body's end.
type bodyBeforeTrailer struct {
	io.ReadCloser
	came, kept http.Header
}

// Read implements io.Reader.
func (b *bodyBeforeTrailer) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		maps.Copy(b.kept, withoutKgate(b.came))
	}
	return n, err
}
