package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

const schemaFile = "../../configs/kgate.schema.json"

// schema is a JSON Schema, draft 7, which is what editors understand best.
type schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        any                `json:"type,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Minimum     *int               `json:"minimum,omitempty"`
	Maximum     *int               `json:"maximum,omitempty"`
	Default     any                `json:"default,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Additional  *bool              `json:"additionalProperties,omitempty"`
	AnyOf       []*schema          `json:"anyOf,omitempty"`
}

// newSchema returns the schema of a group of keys.
func newSchema(group *reference) *schema {
	s := &schema{Type: []string{"object", "null"}, Properties: map[string]*schema{}, Additional: ptr(false), Description: group.doc}
	for _, key := range group.below {
		s.Properties[key.name] = newValueSchema(key)
		if key.defaultText() == "required" && key.path != "pools[].k" { // upstreams may have it
			s.Required = append(s.Required, key.name)
		}
	}
	return s
}

func newValueSchema(key *reference) *schema {
	var s *schema
	switch kind := kindOf(reflect.Zero(key.typ)); {
	case key.list():
		s = &schema{Type: []string{"array", "null"}, Items: newSchema(key)}
	case len(key.below) > 0:
		return newSchema(key)
	case kind == kindList:
		s = &schema{Type: []string{"array", "null"}, Items: scalarSchema("", key.typ.Elem())}
		if key.path == "pools[].upstreams" {
			s.Items = &schema{AnyOf: []*schema{s.Items, upstreamSchema(s.Items, "k"), upstreamSchema(s.Items, "k_each")}}
		}
	default:
		s = scalarSchema(key.path, key.typ)
		if def := key.defaultText(); def != "" && def != "required" {
			s.Default = plain(key.std)
		}
	}
	s.Description = key.doc
	switch effectOf(key.path) {
	case EffectRestart:
		s.Description += " Needs a restart."
	case EffectNewPool:
		s.Description += " Counts for a pool that is new in the cluster."
	case EffectReload:
	}
	return s
}

// upstreamSchema returns the schema of an upstream with a k of its own.
func upstreamSchema(url *schema, what string) *schema {
	k := scalarSchema("pools[].k", reflect.TypeFor[int]())
	return &schema{Type: "object", Properties: map[string]*schema{"url": url, what: k}, Required: []string{"url", what}, Additional: ptr(false)}
}

const durationPattern = `(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*)`

// scalarSchema returns the schema of a value that holds no others.
func scalarSchema(path string, t reflect.Type) *schema {
	patterns := map[reflect.Type]string{
		reflect.TypeFor[time.Duration](): "^" + durationPattern + "$",
		reflect.TypeFor[AutoDuration]():  "^(auto|" + durationPattern + ")$",
		reflect.TypeFor[Rate]():          `^(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)([GMK]i|[GMk])?B/s|([0-9]+(\.[0-9]*)?|\.[0-9]+)[GMk]bit/s)$`,
		reflect.TypeFor[ClientKey]():     "^(ip|header:[^ :]+)$",
		reflect.TypeFor[ClientWeight]():  "^.+=[0-9.]+$",
		reflect.TypeFor[HeaderField]():   "^[^ :]+:.*[^ ]",
		reflect.TypeFor[Status]():        "^[45]([0-9][0-9]|xx)$",
	}
	if strings.HasPrefix(parsedTypes[t], "a URL") {
		return &schema{Type: "string", Pattern: "^((http|https|h2c|tcp)://|unix:/)."}
	}
	switch kindOf(reflect.Zero(t)) {
	case kindWhole:
		s := &schema{Type: "integer", Minimum: ptr(0)}
		if path == "pools[].k" {
			s.Minimum, s.Maximum = ptr(1), ptr(kmutex.MaxK)
		}
		return s
	case kindNumber:
		return &schema{Type: "number", Minimum: ptr(0), Maximum: ptr(1)}
	case kindSwitch:
		return &schema{Type: "boolean"}
	default:
		s := &schema{Type: "string", Pattern: patterns[t], Enum: wordsOf(path, t)}
		if t == reflect.TypeFor[Status]() {
			s.Type, s.Minimum, s.Maximum = []string{"string", "integer"}, ptr(400), ptr(599)
		}
		if strings.Contains(s.Pattern, "0|") { // also without quotes
			s.Type, s.Minimum, s.Maximum = []string{"string", "integer"}, ptr(0), ptr(0)
		}
		return s
	}
}

// plain returns a default as JSON has it.
func plain(v reflect.Value) any {
	switch kindOf(v) {
	case kindWhole, kindNumber, kindSwitch:
		return v.Interface()
	default:
		return strings.Trim(show(v), `"`)
	}
}

// TestSchema holds the JSON Schema to the types. What it takes and refuses is
// tested in test/packaging, with a validator.
func TestSchema(t *testing.T) {
	root := newSchema(newReference(t))
	root.Schema, root.Title, root.Type = "http://json-schema.org/draft-07/schema#", "kgate configuration", "object"
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	to.SetIndent("", "  ")
	if err := to.Encode(root); err != nil {
		t.Fatal(err)
	}
	checkGolden(t, schemaFile, text.String())
}
