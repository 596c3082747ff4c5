package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// errInvalid is what every error about the contents of a configuration wraps.
var errInvalid = errors.New("config: invalid")

// valueError is one thing that is wrong with a configuration.
type valueError struct {
	// File, Line and Column say where, Line and Column from 1. Line 0: the
	// value is in no file. File is a flag's name when a flag gave the value.
	File         string
	Line, Column int
	// Key is the path of the key, such as pools[0].queue.limit; may be empty.
	Key string
	// Wrong says what is wrong, Hint what to write instead.
	Wrong, Hint string

	excerpt string // the line, with a mark under the column
}

// Error formats e as file:line:column: key: what is wrong; what to write, and
// the line in question below it.
func (e *valueError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
		}
		b.WriteString(": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Wrong)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	b.WriteString(e.excerpt)
	return b.String()
}

// Lines returns what an error of this package says, one line for each thing that
// is wrong: for a log, without the lines in question.
func Lines(err error) []string {
	switch e := err.(type) { // walks the tree itself: all leaves count
	case *valueError:
		bare := *e
		bare.excerpt = ""
		return []string{strings.ReplaceAll(bare.Error(), "\n", " ")}
	case interface{ Unwrap() []error }:
		var all []string
		for _, err := range e.Unwrap() {
			all = append(all, Lines(err)...)
		}
		return all
	default:
		return []string{strings.ReplaceAll(err.Error(), "\n", " ")}
	}
}

// FromFlags reports whether err is about flags or environment variables alone,
// and not about a file or the host.
func FromFlags(err error) bool {
	switch e := err.(type) { // walks the tree itself: all leaves count
	case *valueError:
		return strings.HasPrefix(e.File, "--") || e.File == "" && e.Line == 0
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		return len(all) > 0 && !slices.ContainsFunc(all, func(err error) bool { return !FromFlags(err) })
	case interface{ Unwrap() error }:
		return FromFlags(e.Unwrap())
	default:
		return false
	}
}

// Unwrap returns errInvalid.
func (e *valueError) Unwrap() error { return errInvalid }

// place is where a value comes from: a line and column of the file, or a flag.
type place struct {
	line, column int
	flag         string
	secret       bool // do not quote the line
}

// source remembers where each key's value comes from.
type source struct {
	file   string
	lines  [][]byte
	places map[string]place
	failed map[string]bool // keys whose value could not be read
}

func newSource(file string, data []byte) *source {
	return &source{file: file, lines: bytes.Split(data, []byte("\n")), places: map[string]place{}, failed: map[string]bool{}}
}

func (s *source) set(key string, p place) { s.places[key] = p }

// override notes that a flag gives key, in place of whatever the file had
// there.
func (s *source) override(key string, p place) {
	for k := range s.places {
		if within(k, key) {
			delete(s.places, k)
		}
	}
	for k := range s.failed {
		if within(k, key) {
			delete(s.failed, k)
		}
	}
	s.set(key, p)
}

// overridden reports whether a flag gives key, or a group around it.
func (s *source) overridden(key string) bool {
	for ; key != ""; key = parentKey(key) {
		if p, ok := s.places[key]; ok {
			return p.flag != ""
		}
	}
	return false
}

// within reports whether k is key or below it.
func within(k, key string) bool {
	return strings.HasPrefix(k, key) && (len(k) == len(key) || k[len(key)] == '.' || k[len(key)] == '[')
}

func (s *source) fail(key string) { s.failed[key] = true }

// given reports whether the file or a flag sets key.
func (s *source) given(key string) bool {
	_, ok := s.places[key]
	return ok
}

// broken reports whether the value of key, or of a group around it, could not
// be read. That error is enough: what else is wrong with it only follows.
func (s *source) broken(key string) bool {
	for ; key != ""; key = parentKey(key) {
		if s.failed[key] {
			return true
		}
	}
	return s.failed[""]
}

// at returns the error about key. A key that nobody gave is reported where the
// nearest key around it stands.
func (s *source) at(key, wrong, hint string) *valueError {
	for outer := key; outer != ""; outer = parentKey(outer) {
		if p, ok := s.places[outer]; ok {
			return s.atPlace(p, key, wrong, hint)
		}
	}
	return &valueError{File: s.file, Key: key, Wrong: wrong, Hint: hint}
}

func (s *source) atPlace(p place, key, wrong, hint string) *valueError {
	if p.flag != "" {
		return &valueError{File: p.flag, Key: key, Wrong: wrong, Hint: hint}
	}
	e := &valueError{File: s.file, Line: p.line, Column: p.column, Key: key, Wrong: wrong, Hint: hint}
	if !p.secret {
		e.excerpt = s.excerpt(p.line, p.column)
	}
	return e
}

// parentKey cuts the last element off a key's path.
func parentKey(key string) string { return key[:max(strings.LastIndexAny(key, ".["), 0)] }

// line returns a line of the file, from 1; "" if there is none.
func (s *source) line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	return string(s.lines[n-1])
}

// excerpt shows a line with a mark under the column. Lines that are long or
// not printable are left out: the position must do.
func (s *source) excerpt(line, column int) string {
	const widest = 160
	text := strings.TrimRight(s.line(line), " \t\r")
	if text == "" || column < 1 {
		return ""
	}
	if len(text) > widest || !printable(text) || mayHoldSecret(text) {
		return ""
	}
	number := strconv.Itoa(line)
	mark := strings.Repeat(" ", min(column-1, utf8.RuneCountInString(text)))
	text = strings.ReplaceAll(text, "\t", " ")
	return fmt.Sprintf("\n  %s | %s\n  %*s | %s^", number, text, len(number), "", mark)
}

// mayHoldSecret reports whether a line looks as if a key, as cluster.gossip_key was, or a password in a URL were in it.
func mayHoldSecret(line string) bool {
	line = strings.ToLower(line)
	return strings.Contains(line, "secret") || strings.Contains(line, "@") ||
		strings.Contains(line, "key") && (strings.Contains(line, "gos") || encoded.MatchString(line))
}

// encoded matches what is long enough for a key.
var encoded = regexp.MustCompile(`[a-z0-9+/]{16}`)

func printable(s string) bool {
	for _, r := range s {
		if r != '\t' && !unicode.IsPrint(r) || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// quote quotes s, shortened if it is long.
func quote(s string) string {
	const longest = 60
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "..."
	}
	return strconv.Quote(s)
}

func joinKey(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}
