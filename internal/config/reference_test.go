package config

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/kgate/kgate/internal/admission"
)

// The reference of all keys, and their JSON Schema, come from the types and from
// what is written above their fields.

// reference is one key, or a group of keys.
type reference struct {
	path  string // pools[].queue.limit
	name  string // limit
	doc   string
	typ   reflect.Type
	std   reflect.Value // its default
	below []*reference  // the keys of a group
}

// list reports whether the key holds a list of groups.
func (r *reference) list() bool { return len(r.below) > 0 && r.typ.Kind() == reflect.Slice }

// newReference describes all keys.
func newReference(t *testing.T) *reference {
	root := &reference{typ: reflect.TypeFor[Config](), std: reflect.ValueOf(Default()).Elem()}
	root.describe(readComments(t))
	return root
}

// describe fills in what is below r.
func (r *reference) describe(docs comments) {
	group, std := r.typ, r.std
	if group.Kind() == reflect.Slice {
		group, std = group.Elem(), entryDefault(group.Elem())
	}
	for i := range group.NumField() {
		field := group.Field(i)
		name := field.Tag.Get("yaml")
		if name == "" {
			continue
		}
		key := &reference{path: joinKey(r.path, name), name: name, typ: field.Type, std: std.Field(i), doc: docs.of(group.Name(), field.Name)}
		inner := field.Type
		if kindOf(reflect.Zero(inner)) == kindList && kindOf(reflect.Zero(inner.Elem())) == kindMapping {
			key.path += "[]"
			inner = inner.Elem()
		}
		if kindOf(reflect.Zero(inner)) == kindMapping {
			key.doc = docs.group(inner.Name(), name, inner != field.Type)
			key.describe(docs)
		}
		r.below = append(r.below, key)
	}
}

// groups returns the groups at and below r, in order.
func (r *reference) groups() []*reference {
	all := []*reference{r}
	for _, key := range r.below {
		if len(key.below) > 0 {
			all = append(all, key.groups()...)
		}
	}
	return all
}

// comments are what is written about Type and Type.Field.
type comments map[string]string

func readComments(t *testing.T) comments {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	docs := comments{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, spec := range decl.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					docs["."+s.Name.Name] = decl.Doc.Text()
					docs.fields(s)
				}
			}
			return true
		})
	}
	return docs
}

func (c comments) fields(s *ast.TypeSpec) {
	group, ok := s.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range group.Fields.List {
		for _, name := range f.Names {
			c[s.Name.Name+"."+name.Name] = f.Doc.Text() + f.Comment.Text()
		}
	}
}

var links = regexp.MustCompile(`\[[A-Z][A-Za-z.]*\]`)

// of returns what is written about a field. What is said of it by its name stands
// beside the key, so that the name and the verb can go.
func (c comments) of(group, field string) string {
	doc := strings.Join(strings.Fields(c[group+"."+field]), " ")
	if rest, ok := strings.CutPrefix(doc, field+" "); ok && !slices.Contains([]string{"of", "that"}, strings.Fields(rest)[0]) {
		doc = rest
		for _, verb := range []string{"is ", "are ", "says "} {
			doc = strings.TrimPrefix(doc, verb)
		}
	}
	if first, size := utf8.DecodeRuneInString(doc); size > 0 {
		doc = string(unicode.ToUpper(first)) + doc[size:]
	}
	if !strings.HasSuffix(doc, ".") {
		doc += "."
	}
	return doc
}

// group returns what is written about a type, as said of its key, or of one entry
// of a list.
func (c comments) group(name, key string, entry bool) string {
	doc := strings.Join(strings.Fields(c["."+name]), " ")
	subject := "`" + key + "`"
	if entry {
		subject = article(words(name))
	}
	return subject + strings.TrimPrefix(doc, name)
}

// words are those of a Go name in camel case.
func words(name string) string {
	return strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(name, "$1 $2"))
}

// article returns a noun behind A or An.
func article(noun string) string {
	if strings.Contains("aeio", noun[:1]) {
		return "An " + noun
	}
	return "A " + noun
}

// plural returns the plural of a noun.
func plural(noun string) string {
	if strings.HasSuffix(noun, "s") {
		return noun + "es"
	}
	return noun + "s"
}

// valueType names the type of a value, and the words that it knows.
func valueType(path string, t reflect.Type) (name string, words []string) {
	if words = wordsOf(path, t); words != nil {
		return "`" + strings.Join(words, "` or `") + "`", words
	}
	switch kindOf(reflect.Zero(t)) {
	case kindWhole:
		return "integer", nil
	case kindNumber:
		return "number", nil
	case kindSwitch:
		return "bool", nil
	case kindText:
		if namesFile(path) {
			return "file", nil
		}
		return "text", nil
	case kindList:
		inner, _ := valueType("", t.Elem())
		return "list of " + plural(inner), nil
	case kindParsed:
		name, _, _ = strings.Cut(parsedTypes[t], ", such as")
		return strings.TrimPrefix(strings.TrimPrefix(name, "an "), "a "), nil
	case kindMapping:
	}
	return "keys", nil
}

// wordsOf returns the words that a key knows; nil: it takes others, too.
func wordsOf(path string, t reflect.Type) []string {
	switch path {
	case "log.level":
		return logLevels
	case "log.format":
		return logFormats
	}
	known := map[reflect.Type]any{
		reflect.TypeFor[admission.Binding](): bindings, reflect.TypeFor[admission.Reclaim](): reclaims, reflect.TypeFor[Waiting](): waitings, reflect.TypeFor[Role](): roles,
		reflect.TypeFor[Order]():         orders,
		reflect.TypeFor[ProxyProtocol](): proxyProtocols,
	}
	if list, ok := known[t]; ok {
		return strings.Fields(strings.Trim(fmt.Sprint(list), "[]"))
	}
	return nil
}

// flags returns the flag of each key that has one.
func flags(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for i := range reflect.TypeFor[Overrides]().NumField() {
		c := mustParse(t, minimal)
		var o Overrides
		switch f := reflect.ValueOf(&o).Elem().Field(i).Addr().Interface().(type) {
		case *string:
			*f = "x"
		case **int:
			*f = ptr(1)
		case *[]string:
			*f = []string{"http://127.0.0.1:1"}
		}
		c.apply(o)
		for key, p := range c.src.places {
			if p.flag != "" && !strings.HasSuffix(key, "]") {
				flag, _, _ := strings.Cut(p.flag, " ")
				found[indexes.ReplaceAllString(key, "[]")] = flag
			}
		}
	}
	return found
}

const referenceHead = `# Configuration

One YAML file: ` + "`kgate serve -c FILE`" + `. Check it before it is used, with all errors at once: ` + "`kgate check -c FILE`" + `; ` + "`--files`" + ` looks for the files that it names, too, and ` + "`--print`" + ` shows what then holds.
Then ` + "`kgate reload`" + ` or ` + "`systemctl reload kgate`" + `.

Each key has its type and its default; of words the first is the default. A flag wins over an environment variable (--listen-http: KGATE_LISTEN_HTTP), a variable over
the file, and the file over the default. Durations have a unit: 500ms, 60s, 5m, 1h30m. This page is made from the code.

A change counts with the reload, unless the key says

- *restart*: when the gateway is started again, one after the other ([upgrading](upgrading.md));
- *new pool*: when the cluster has no pool of that name yet. Later what the gateways have agreed on counts; ` + "`kgate pool set NAME --k N`" + ` changes k.

Requests that wait keep their places and the bounds they came under; those in flight keep their connections. A new pool
is proposed to the cluster; one that is gone is not served here any more, and stays in the cluster. Changed certificates of ` + "`listen.tls`" + ` are read by themselves, those of ` + "`transport.tls`" + ` with the reload.

In an editor with a YAML language server: ` + "`kgate check --schema > kgate.schema.json`" + `, and as the first line of the file

` + "```yaml\n# yaml-language-server: $schema=kgate.schema.json\n```\n"

// referencePage is docs/configuration.md.
func referencePage(t *testing.T) string {
	var b strings.Builder
	b.WriteString(referenceHead)
	flag, shown := flags(t), make(map[reflect.Type]string)
	for _, group := range newReference(t).groups() {
		title := "`" + group.path + "`"
		if group.path == "" {
			title = "Top level"
		}
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		if same := shown[group.keys()]; same != "" {
			fmt.Fprintf(&b, "The keys of `%s`.\n", same)
		} else {
			group.write(&b, flag)
			shown[group.keys()] = group.path
		}
		writeExamples(t, &b, group.path)
	}
	return b.String()
}

// keys is the type that declares the keys of a group.
func (r *reference) keys() reflect.Type {
	if r.list() {
		return r.typ.Elem()
	}
	return r.typ
}

// write writes what a group is for, and the keys that are no groups themselves.
func (r *reference) write(b *strings.Builder, flag map[string]string) {
	if r.doc != "" {
		b.WriteString(r.doc + "\n\n")
	}
	for _, key := range r.below {
		if len(key.below) == 0 {
			fmt.Fprintf(b, "- `%s` (%s): %s\n", key.name, key.valueText(), key.docText(flag[key.path]))
		}
	}
}

// examples are shown below the keys that they are about. Package main of cmd/kgate runs
// each as the page has it.
var examples = map[string][]string{
	"listen.hsts":               {"https-only.yaml"},
	"listen.tls.certificates[]": {"certificates.yaml"},
	"listen.tcp[]":              {"tcp-access.yaml"},
	"error_pages[]":             {"error-pages.yaml"},
	"routes[].cors":             {"cors.yaml"},
	"routes[]":                  {"access.yaml"},
	"routes[].response_headers": {"headers.yaml"},
}

func writeExamples(t *testing.T, b *strings.Builder, group string) {
	t.Helper()
	for _, name := range examples[group] {
		data, err := os.ReadFile("testdata/examples/" + name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "\n```yaml\n# %s: %s```\n", name, bytes.TrimPrefix(data, []byte("# ")))
	}
}

// TestShownExamples: every example is shown, and is right.
func TestShownExamples(t *testing.T) {
	files, err := filepath.Glob("testdata/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, names := range examples {
		shown += len(names)
	}
	if shown != len(files) {
		t.Errorf("%d examples, %d are shown", len(files), shown)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(filepath.Base(file), data); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// valueText names the type of a value, and its default if that is not nothing.
func (r *reference) valueText() string {
	name, words := valueType(r.path, r.typ)
	switch text := r.defaultText(); {
	case r.path == "pools[].k":
		return name + ", required unless the upstreams have one"
	case text == "required":
		return name + ", required"
	case text == "" || text == "false" || len(words) > 0 && text == words[0]:
		return name
	default:
		return name + " `" + text + "`"
	}
}

func (r *reference) defaultText() string {
	switch text := show(r.std); {
	case slices.Contains([]string{"pools[].name", "pools[].k"}, r.path):
		return "required"
	case text == `""` || text == "[]" || text == "none":
		return ""
	default:
		return text
	}
}

// docText is what is written about a key, with when a change counts and its flag.
func (r *reference) docText(flag string) string {
	doc := r.doc
	if effect := effectOf(r.path); effect != EffectReload {
		doc += " *" + string(effect) + "*"
	}
	if flag != "" {
		doc += " `" + flag + "`"
	}
	return doc
}

// TestReference holds docs/configuration.md to the code.
func TestReference(t *testing.T) {
	checkGolden(t, "../../docs/configuration.md", referencePage(t))
	for _, group := range newReference(t).groups() {
		for _, key := range group.below {
			if utf8.RuneCountInString(key.doc) < 8 || links.MatchString(key.doc) {
				t.Errorf("%s: %q is not what a user can read", key.path, key.doc)
			}
		}
	}
}
