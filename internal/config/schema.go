package config

import (
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// valueKind is what the file writes for a Go value.
type valueKind uint8

const (
	kindMapping valueKind = iota
	kindList
	kindWhole
	kindNumber
	kindSwitch
	kindText
	kindParsed // text that a parser reads
)

// parsedTypes are the types that a parser reads, and what the file has for each.
var parsedTypes = map[reflect.Type]string{
	reflect.TypeFor[time.Duration](): "a duration, such as 60s",
	reflect.TypeFor[*url.URL]():      "a URL, such as http://127.0.0.1:9000",
	reflect.TypeFor[netip.Prefix]():  "a network, such as 10.0.0.0/8",
	reflect.TypeFor[netip.Addr]():    "an IP address, such as 10.0.0.1",
	reflect.TypeFor[AutoDuration]():  "auto or a duration, such as 2ms",
	reflect.TypeFor[Rate]():          "a rate, such as 100MiB/s",
	reflect.TypeFor[ClientKey]():     "ip or a header, such as header:X-Api-Key",
	reflect.TypeFor[ClientWeight]():  `a client's weight, such as "gold=3"`,
	reflect.TypeFor[Status]():        "a status, such as 503 or 5xx",
	reflect.TypeFor[HeaderField]():   `a header field, such as "X-Real-IP: {client}" (in quotes)`,
}

func kindOf(v reflect.Value) valueKind {
	t := v.Type()
	if _, ok := parsedTypes[t]; ok {
		return kindParsed
	}
	switch t.Kind() { // the configuration has no others
	case reflect.Struct:
		return kindMapping
	case reflect.Slice:
		return kindList
	case reflect.Int:
		return kindWhole
	case reflect.Float64:
		return kindNumber
	case reflect.Bool:
		return kindSwitch
	default:
		return kindText
	}
}

func (k valueKind) belongs() string {
	return [...]string{"keys", "a list", "a whole number", "a number", "true or false", "text", "text"}[k]
}

func (k valueKind) example() string {
	return [...]string{"keys", "[]", "a whole number, such as 8", "a number, such as 0.5", "true or false", "text", "a value"}[k]
}

// describe says what the file has where something else belongs.
func describe(node ast.Node) string {
	switch node.(type) {
	case *ast.MappingNode:
		return "a group of keys"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "empty"
	case *ast.StringNode, *ast.LiteralNode:
		return "the text " + quote(node.GetToken().Value)
	default:
		return clip(node.GetToken().Value)
	}
}

// fieldOf returns the field of struct v that the file calls name.
func fieldOf(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("yaml") == name && name != "" {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// keysOf returns the keys of struct t, in the order of its fields.
func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" {
			keys = append(keys, name)
		}
	}
	return keys
}

// unknownKeyHint says which key of the same group was meant, or in which other
// group the key belongs.
func unknownKeyHint(name string, siblings []string) string {
	if elsewhere := schemaPaths(name); len(elsewhere) > 0 {
		return "the key " + name + " belongs here: " + list(elsewhere)
	}
	return didYouMean(name, siblings, "the keys here are")
}

// schemaPaths returns every path of the schema that ends with the key name.
func schemaPaths(name string) []string {
	var found []string
	var walk func(path string, t reflect.Type)
	walk = func(path string, t reflect.Type) {
		for i := range t.NumField() {
			field := t.Field(i)
			tag := field.Tag.Get("yaml")
			if tag == "" {
				continue
			}
			at := joinKey(path, tag)
			if tag == name {
				found = append(found, at)
			}
			next := field.Type
			if next.Kind() == reflect.Slice {
				at, next = at+"[]", next.Elem()
			}
			if kindOf(reflect.Zero(next)) == kindMapping {
				walk(at, next)
			}
		}
	}
	walk("", reflect.TypeFor[Config]())
	slices.Sort(found)
	return found
}

// clip shortens a word that is quoted without marks.
func clip(s string) string {
	if q := quote(s); q != `"`+s+`"` {
		return strings.Trim(q, `"`)
	}
	return s
}
