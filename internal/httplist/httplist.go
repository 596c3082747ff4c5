// Package httplist splits the values of HTTP headers that are lists (RFC 9110,
// section 5.6.1). A comma or semicolon within a quoted string, or within a comment of
// Via, ends nothing.
package httplist

import (
	"iter"
	"strings"
)

// Elements yields the elements of a list header's lines, without the space around them. It leaves out
// empty elements.
func Elements(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range lines {
			for rest := line; rest != ""; {
				var element string
				element, rest = next(rest, ',')
				if element = strings.Trim(element, " \t"); element != "" && !yield(element) {
					return
				}
			}
		}
	}
}

// Parameters splits an element at its semicolons, without the space around the parts. The first part,
// always present, is the value that the parameters belong to.
func Parameters(element string) []string {
	var parts []string
	for more := true; more; {
		var part string
		end := len(element)
		part, element = next(element, ';')
		more = len(part) < end
		parts = append(parts, strings.Trim(part, " \t"))
	}
	return parts
}

// Unquote returns the text of a quoted string, and any other s unchanged.
func Unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	s = s[1 : len(s)-1]
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// next cuts s at the first separator that is in no quoted string and no comment.
func next(s string, separator byte) (element, rest string) {
	quoted, depth := false, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && (quoted || depth > 0):
			i++
		case c == '"' && depth == 0:
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case c == separator && depth == 0:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
