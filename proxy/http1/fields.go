package http1

import (
	"fmt"
	"slices"
	"strings"
)

// Field is a field of a head, apart from the bytes that it was read from. Its name is as net/http
// spells it.
type Field struct {
	Name, Value string
	ID          ID // of Name
}

// NewField returns a field. Its name must be spelled as net/http does.
func NewField(name, value string) Field { return Field{name, value, idOf(name)} }

// Fields are those of a head, in their order.
type Fields []Field

// Has reports whether there is a field of a name, which is not Other.
func (f Fields) Has(id ID) bool {
	for i := range f {
		if f[i].ID == id {
			return true
		}
	}
	return false
}

// Values returns the values of a name, spelled as net/http does. Inlined, it would make the stacks
// larger on which clients wait.
//
//go:noinline
func (f Fields) Values(name string) []string {
	var values []string
	for i := range f {
		if f[i].Name == name {
			values = append(values, f[i].Value)
		}
	}
	return values
}

// Get returns the first value of a name, spelled as net/http does; "" if there is none.
func (f Fields) Get(name string) string {
	for i := range f {
		if f[i].Name == name {
			return f[i].Value
		}
	}
	return ""
}

// Only returns the value of a name, which is not Other, if it has one alone.
func (f Fields) Only(id ID) (value string, ok bool) {
	for i := range f {
		if f[i].ID != id {
			continue
		}
		if ok {
			return "", false
		}
		value, ok = f[i].Value, true
	}
	return value, ok
}

// HasToken is Head.HasToken.
func (f Fields) HasToken(id ID, token string) bool {
	for i := range f {
		if f[i].ID != id {
			continue
		}
		for element := range strings.SplitSeq(f[i].Value, ",") {
			if equalFold(strings.Trim(element, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// Delete removes the fields of a name.
func (f *Fields) Delete(name string) {
	*f = slices.DeleteFunc(*f, func(field Field) bool { return field.Name == name })
}

// Add adds a field behind the others.
func (f *Fields) Add(name, value string) { *f = append(*f, NewField(name, value)) }

// Set adds a field, and removes others of its name.
func (f *Fields) Set(name, value string) {
	f.Delete(name)
	f.Add(name, value)
}

// AppendTo appends the lines of the fields but those of which skip tells. The error wraps a Rule.
func (f Fields) AppendTo(dst []byte, skip func(*Field) bool) ([]byte, error) {
	var err error
	for i := range f {
		if skip(&f[i]) {
			continue
		}
		if dst, err = AppendField(dst, f[i].Name, f[i].Value); err != nil {
			return dst, fmt.Errorf("%w: %q", err, f[i].Name)
		}
	}
	return dst, nil
}
