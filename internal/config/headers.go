package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kgate/kgate/internal/headeredit"
)

// HeaderEdits edits the header of requests to the upstream, or of its answers: fields
// are removed, then set, then added. In a value {client} is the client's address,
// {host} the host that it asks for, and there are {request_id}, {pool} and {gateway}.
type HeaderEdits struct {
	// Remove are names of fields to remove.
	Remove []string `yaml:"remove"`
	// Set are fields, each "Name: value", in place of all of that name.
	Set []HeaderField `yaml:"set"`
	// Add are fields beside those of that name.
	Add []HeaderField `yaml:"add"`
}

// HeaderField is one field of a header.
type HeaderField struct{ Name, Value string }

// String formats f as the file has it.
func (f HeaderField) String() string { return f.Name + ": " + f.Value }

// UnmarshalText reads a name, a colon and a value.
func (f *HeaderField) UnmarshalText(text []byte) error {
	name, value, ok := strings.Cut(string(text), ":")
	if !ok {
		return problem(quote(string(text))+" is not a header field", `write a name, a colon and a value, such as "X-Real-IP: {client}"`)
	}
	*f = HeaderField{Name: name, Value: strings.Trim(value, " \t")}
	_, err := headeredit.ParseValue(f.Value)
	return editProblem(err)
}

// editProblem returns what is wrong with a field as a problem.
func editProblem(err error) error {
	var e *headeredit.Error
	if errors.As(err, &e) {
		return problem(e.Wrong, e.Hint)
	}
	return err
}

// headers checks the changes to a header; may says which fields they may change.
func (v *validator) headers(key string, e HeaderEdits, may func(name string) error) {
	check := func(key, name string) {
		var p *problemError
		if errors.As(editProblem(may(name)), &p) {
			v.wrong(key, p.wrong, p.hint)
		}
	}
	same := func(name string) func(string) bool {
		return func(other string) bool { return strings.EqualFold(name, other) }
	}
	for i, name := range e.Remove {
		check(fmt.Sprintf("%s.remove[%d]", key, i), name)
	}
	for i, f := range e.Set {
		at := fmt.Sprintf("%s.set[%d]", key, i)
		check(at, f.Name)
		if slices.ContainsFunc(e.Set[:i], func(g HeaderField) bool { return same(f.Name)(g.Name) }) {
			v.wrong(at, quote(f.Name)+" is set twice", "keep one of the two, or write the second under add")
		}
		if slices.ContainsFunc(e.Remove, same(f.Name)) {
			v.wrong(at, quote(f.Name)+" is removed, too", "set replaces what is there: write it under set alone")
		}
	}
	for i, f := range e.Add {
		check(fmt.Sprintf("%s.add[%d]", key, i), f.Name)
	}
}

// requestID checks the header for ids, and that there are ids where they are used.
func (v *validator) requestID(c *Config) {
	const key = "request_id_header"
	if name := c.RequestIDHeader; name != "" {
		var p *problemError
		if errors.As(editProblem(headeredit.CheckRequest(name)), &p) {
			v.wrong(key, p.wrong, p.hint)
		}
		return
	}
	if v.src.broken(key) {
		return
	}
	for i, r := range c.Routes {
		for _, part := range []struct {
			key    string
			fields []HeaderField
		}{
			{"request_headers.set", r.RequestHeaders.Set},
			{"request_headers.add", r.RequestHeaders.Add},
			{"response_headers.set", r.ResponseHeaders.Set},
			{"response_headers.add", r.ResponseHeaders.Add},
		} {
			for j, f := range part.fields {
				if value, _ := headeredit.ParseValue(f.Value); value.Uses(headeredit.RequestID) {
					v.wrong(fmt.Sprintf("%s[%d].%s[%d]", keyRoutes, i, part.key, j), "requests have no id", "write request_id_header: X-Request-ID")
				}
			}
		}
	}
}
