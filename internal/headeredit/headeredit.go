// Package headeredit defines how a configuration may change header fields: which names, and values
// with placeholders. The configuration file and the proxy share it.
package headeredit

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Placeholders are the words that may stand in braces in a value: the client's address, the requested
// host, the request's id, the pool of its route, and the name of the gateway.
const (
	Client    = "client"
	Host      = "host"
	RequestID = "request_id"
	Pool      = "pool"
	Gateway   = "gateway"
)

var placeholders = []string{Client, Host, RequestID, Pool, Gateway}

// Error is the error of a name or a value: what is wrong, and a hint what to write instead.
type Error struct{ Wrong, Hint string }

func (e *Error) Error() string { return e.Wrong + "; " + e.Hint }

// Value is the value of a field: text, with placeholders between.
type Value struct{ parts []part }

// part is text, or a placeholder.
type part struct{ text, placeholder string }

// ParseValue reads a value. Braces with anything in them but a word are text.
func ParseValue(s string) (Value, error) {
	var v Value
	if s == "" {
		return v, &Error{"the value is empty", "to remove a field, write its name under remove"}
	}
	if !httpguts.ValidHeaderFieldValue(s) {
		return v, &Error{fmt.Sprintf("the value %q has a line break or another control character", s), "write it on one line, without control characters"}
	}
	if s != strings.Trim(s, " \t") {
		return v, &Error{fmt.Sprintf("the value %q begins or ends with a space", s), "remove the space: recipients drop it"}
	}
	text := 0
	for i := 0; i < len(s); i++ {
		word, ok := wordInBraces(s[i:])
		if !ok {
			continue
		}
		if !slices.Contains(placeholders, word) {
			return v, &Error{"there is no placeholder {" + word + "}", "the placeholders are {" + strings.Join(placeholders, "}, {") + "}"}
		}
		if text < i {
			v.parts = append(v.parts, part{text: s[text:i]})
		}
		v.parts = append(v.parts, part{placeholder: word})
		i += len(word) + 1
		text = i + 1
	}
	if text < len(s) {
		v.parts = append(v.parts, part{text: s[text:]})
	}
	return v, nil
}

// wordInBraces returns the word of s if that begins with one in braces.
func wordInBraces(s string) (word string, ok bool) {
	if s[0] != '{' {
		return "", false
	}
	word, _, ok = strings.Cut(s[1:], "}")
	return word, ok && word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// Fixed returns the value if it has no placeholder.
func (v Value) Fixed() (string, bool) {
	if len(v.parts) == 1 && v.parts[0].placeholder == "" {
		return v.parts[0].text, true
	}
	return "", false
}

// Uses reports whether the value has the placeholder.
func (v Value) Uses(placeholder string) bool {
	return slices.ContainsFunc(v.parts, func(p part) bool { return p.placeholder == placeholder })
}

// Expand returns the value with its placeholders replaced by lookup. It reports false if no field may
// have the resulting value.
func (v Value) Expand(lookup func(placeholder string) string) (string, bool) {
	b := make([]byte, 0, 64)
	for _, p := range v.parts {
		if p.placeholder != "" {
			b = append(b, lookup(p.placeholder)...)
		} else {
			b = append(b, p.text...)
		}
	}
	s := string(b)
	return s, httpguts.ValidHeaderFieldValue(s)
}

// IsHopByHop reports whether a field, in canonical form, is for one connection only (RFC 9110, section
// 7.6.1, and older fields that Connection need not list).
func IsHopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// CheckRequest returns why a configuration may not change the field in requests; nil if it may.
func CheckRequest(name string) error {
	switch canonical := textproto.CanonicalMIMEHeaderKey(name); canonical {
	case "Host":
		return &Error{"Host is not changed here", "write transport.host under the pool"}
	case "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto":
		return &Error{canonical + " is written by the gateway", "see trusted_proxies; under another name, such as X-Real-IP, the client's address is {" + Client + "}"}
	case "Expect", "Max-Forwards":
		return &Error{canonical + " is between the client and the gateway", hintOther}
	default:
		return check(name, canonical)
	}
}

// CheckAnswer is CheckRequest for answers.
func CheckAnswer(name string) error {
	switch canonical := textproto.CanonicalMIMEHeaderKey(name); canonical {
	case "Date":
		return &Error{"every answer has a Date", hintOther}
	default:
		return check(name, canonical)
	}
}

const hintOther = "remove it, or choose another field"

func check(name, canonical string) error {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return &Error{fmt.Sprintf("%q is not the name of a field", name), "write a name such as X-Real-IP"}
	case len(name) > maxName:
		return &Error{fmt.Sprintf("the name %q is longer than %d", name[:maxName]+"...", maxName), "choose a shorter one"}
	case IsHopByHop(canonical), canonical == "Content-Length":
		return &Error{canonical + " says how a message is sent over one connection", hintOther}
	case strings.HasPrefix(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "kgate-"):
		return &Error{fmt.Sprintf("%q is reserved: the gateway writes all fields that begin with Kgate-", name), "choose another name"}
	default:
		return nil
	}
}

const maxName = 64
