package packaging

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	configs    = "../../configs/"
	configData = "../../internal/config/testdata/"
)

// TestSchemaTakes gives the JSON Schema, with which editors check configuration
// files, files that are right.
func TestSchemaTakes(t *testing.T) {
	schema := compileSchema(t)
	good, err := filepath.Glob(configs + "*.yaml")
	if err != nil || len(good) < 3 {
		t.Fatalf("%d examples, %v", len(good), err)
	}
	for _, file := range append(good, configData+"every-key.yaml") {
		if filepath.Base(file) == "compose.yaml" {
			continue
		}
		if err := validate(t, schema, file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestSchemaRefuses gives the schema files that the parser refuses: it knows
// keys, types, words, and the form of values.
func TestSchemaRefuses(t *testing.T) {
	schema := compileSchema(t)
	for _, name := range []string{
		"unknown-key", "unknown-key-elsewhere", "wrong-types", "enums", "k-range", "durations", "urls", "clients",
	} {
		if validate(t, schema, configData+"broken/"+name+".yaml") == nil {
			t.Errorf("%s: the schema takes it", name)
		}
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(configs + "kgate.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
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
