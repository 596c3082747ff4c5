package http1

import (
	"bytes"
	"encoding/binary"
)

// Classes of bytes.
const (
	isTokenByte  = 1 << iota // RFC 9110, section 5.6.2
	isHostByte               // of a name or an IPv4 address (RFC 3986, section 3.2.2)
	isTargetByte             // whatever is visible, or not ASCII
	isDigit
	isHex
)

var classes = func() (t [256]uint8) {
	for c := range 256 {
		b := byte(c)
		letter := 'a' <= b|0x20 && b|0x20 <= 'z'
		digit := '0' <= b && b <= '9'
		if letter || digit || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), b) >= 0 {
			t[c] |= isTokenByte
		}
		if letter || digit || bytes.IndexByte([]byte("-._~!$&'()*+,;=%"), b) >= 0 {
			t[c] |= isHostByte
		}
		if b > ' ' && b != 0x7f {
			t[c] |= isTargetByte
		}
		if digit {
			t[c] |= isDigit
		}
		if digit || 'a' <= b|0x20 && b|0x20 <= 'f' {
			t[c] |= isHex
		}
	}
	return t
}()

func is(c byte, class uint8) bool { return classes[c]&class != 0 }

// all reports whether b has bytes of a class only, and at least one.
func all(b []byte, class uint8) bool {
	for _, c := range b {
		if classes[c]&class == 0 {
			return false
		}
	}
	return len(b) > 0
}

// badValueByte returns where the first byte is that may not stand in a value: a control
// character other than a tab (RFC 9110, section 5.5); -1: nowhere.
func badValueByte(b []byte) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		below := (w - ones*' ') &^ w & highs // of bytes below a space; borrows only mark too many
		del := w ^ ones*0x7f
		if below|(del-ones)&^del&highs == 0 {
			continue
		}
		for j := i; j < i+8; j++ {
			if isBadInValue(b[j]) {
				return j
			}
		}
	}
	for ; i < len(b); i++ {
		if isBadInValue(b[i]) {
			return i
		}
	}
	return -1
}

func isBadInValue(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

// judgeValue returns what is wrong with a value; 0 if nothing is.
func judgeValue(b []byte) Rule {
	switch i := badValueByte(b); {
	case i < 0:
		return 0
	case b[i] == '\r':
		return BareCR
	default:
		return BadValue
	}
}

// longestHost has what names in DNS may have at most; an address has less.
const longestHost = 255

// isHost reports whether b is a host, or a host and a port. Which form of an address or a name it
// has does not matter, but that nobody finds its end elsewhere, and that it may be said again: upstreams
// get it three times.
func isHost(b []byte) bool {
	host, port := b, []byte(nil)
	if len(b) > 0 && b[0] == '[' {
		end := bytes.IndexByte(b, ']')
		if end < 0 {
			return false
		}
		host, port = b[1:end], b[end+1:]
		for _, c := range host {
			if !is(c, isHostByte) && c != ':' {
				return false
			}
		}
		if bytes.IndexByte(host, ':') < 0 {
			return false
		}
	} else {
		if i := bytes.IndexByte(b, ':'); i >= 0 {
			host, port = b[:i], b[i:]
		}
		if !all(host, isHostByte) {
			return false
		}
	}
	return len(host) <= longestHost && len(port) <= len(":65535") && (len(port) == 0 || port[0] == ':' && (len(port) == 1 || all(port[1:], isDigit)))
}

// authorityOf returns host and port of a target in absolute form; nil if it has another one. They
// are empty, too, where no two slashes follow http:. A host of that name, with a port, is CONNECT's.
func authorityOf(target []byte) []byte {
	i := bytes.IndexByte(target, ':') + 1
	if i == 0 || !equalFold(target[:i], "http:") && !equalFold(target[:i], "https:") {
		return nil
	}
	rest := target[i:]
	switch {
	case bytes.HasPrefix(rest, []byte("//")):
		rest = rest[2:]
	case len(rest) > 0 && all(rest, isDigit):
		return nil
	default:
		return rest[:0]
	}
	if i := bytes.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	return rest[bytes.IndexByte(rest, '@')+1:]
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}
