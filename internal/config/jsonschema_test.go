package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
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
}

// newSchema returns the schema of a group of keys.
func newSchema(group *reference) *schema {
	s := &schema{Type: []string{"object", "null"}, Properties: map[string]*schema{}, Additional: ptr(false), Description: group.doc}
	for _, key := range group.below {
		s.Properties[key.name] = newValueSchema(key)
		if key.defaultText() == "required" {
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

const durationPattern = `(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*)`

// scalarSchema returns the schema of a value that holds no others.
func scalarSchema(path string, t reflect.Type) *schema {
	patterns := map[reflect.Type]string{
		reflect.TypeFor[time.Duration](): "^" + durationPattern + "$",
		reflect.TypeFor[AskInterval]():   "^(auto|" + durationPattern + ")$",
		reflect.TypeFor[ClientKey]():     "^(ip|header:[^ :]+)$",
	}
	if strings.HasPrefix(parsedTypes[t], "a URL") {
		return &schema{Type: "string", Pattern: "^(http|https|h2c)://."}
	}
	switch kindOf(reflect.Zero(t)) {
	case kindWhole:
		s := &schema{Type: "integer", Minimum: ptr(0)}
		if path == "pools[].k" {
			s.Minimum, s.Maximum = ptr(1), ptr(maxK)
		}
		return s
	case kindNumber:
		return &schema{Type: "number", Minimum: ptr(0), Maximum: ptr(1)}
	case kindSwitch:
		return &schema{Type: "boolean"}
	default:
		s := &schema{Type: "string", Pattern: patterns[t], Enum: wordsOf(path, t)}
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

// TestSchema holds the JSON Schema to the types, and it takes what is right.
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

	compiled := compileSchema(t)
	good, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(good) < 3 {
		t.Fatalf("%d examples, %v", len(good), err)
	}
	for _, file := range append(good, "testdata/every-key.yaml") {
		if filepath.Base(file) == "compose.yaml" {
			continue
		}
		if err := validate(t, compiled, file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestSchemaRefuses gives the schema files that the parser refuses: it knows
// keys, types, words, and the form of values.
func TestSchemaRefuses(t *testing.T) {
	compiled := compileSchema(t)
	for _, name := range []string{
		"unknown-key", "unknown-key-elsewhere", "wrong-types", "enums", "k-range", "durations", "no-upstreams", "urls", "clients",
	} {
		if validate(t, compiled, "testdata/broken/"+name+".yaml") == nil {
			t.Errorf("%s: the schema takes it", name)
		}
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	compiled, err := jsonschema.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func validate(t *testing.T, s *jsonschema.Schema, file string) error {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(value)
}
