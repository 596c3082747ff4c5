package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxSize is the largest file that is read, in bytes.
const maxSize = 1 << 20

// LoadWith returns the configuration that a gateway runs with: the file at
// path, or the defaults if path is empty, with o on top, resolved for this
// host, and checked.
//
// Upstream and K of o are for the pool that o.Pool names, else for the only pool. If there
// is no pool they make one, named o.Pool or "default", and if there is no route either, one
// that leads every request to it.
func LoadWith(path string, o Overrides) (*Config, error) {
	c, decoded := Default(), []error(nil)
	if path != "" {
		data, err := readFile(path)
		if err != nil {
			return nil, err
		}
		if c, decoded, err = decode(path, data); err != nil {
			return nil, err
		}
	}
	if err := c.complete(decoded, o); err != nil {
		return nil, err
	}
	return c, c.Resolve()
}

// Parse reads and checks a configuration; name stands for the file in errors.
func Parse(name string, data []byte) (*Config, error) {
	c, errs, err := decode(name, data)
	if err != nil {
		return nil, err
	}
	if err := c.complete(errs, Overrides{}); err != nil {
		return nil, err
	}
	return c, nil
}

// complete puts o on top of c, which was decoded with these errors, and checks it.
func (c *Config) complete(decoded []error, o Overrides) error {
	applied := c.apply(o)
	c.implyRoute()
	c.sumK()
	// A value that a flag replaces may be wrong in the file.
	decoded = slices.DeleteFunc(decoded, func(err error) bool {
		var e *valueError
		return errors.As(err, &e) && c.src.overridden(e.Key)
	})
	return c.check(append(decoded, applied...))
}

// readFile reads a file of bounded size.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return data, nil
}

// decode fills a configuration from YAML. Errors of single keys go into errs; err means
// that nothing of the file can be read.
func decode(name string, data []byte) (c *Config, errs []error, err error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	c = Default()
	c.src = newSource(name, data)
	body, err := syntax(c.src, data)
	if err != nil {
		return nil, nil, err
	}
	d := &decoder{src: c.src, anchors: map[string]ast.Node{}}
	d.value("", body, reflect.ValueOf(c).Elem())
	c.poolDefaults()
	return c, d.errs, nil
}

// tcpIdle is the default of hold.idle in pools of TCP connections alone. A shell, or a
// client of a database, is silent for longer than a download.
const tcpIdle = 10 * time.Minute

// poolDefaults sets the defaults that depend on other keys of a pool.
func (c *Config) poolDefaults() {
	for i := range c.Pools {
		p, key := &c.Pools[i], fmt.Sprintf("%s[%d]", keyPools, i)
		if p.serves(true) && !p.serves(false) && !c.src.given(key+".hold.idle") {
			p.Hold.Idle = tcpIdle
		}
		// A silent upstream is told from a silent client by which bound comes first.
		if sooner := p.Hold.Idle * 5 / 6; sooner > 0 && !c.src.given(key+".transport.response_header_timeout") {
			p.Transport.ResponseHeaderTimeout = min(p.Transport.ResponseHeaderTimeout, sooner)
		}
	}
}

// syntax parses one YAML document.
func syntax(src *source, data []byte) (ast.Node, error) {
	whole := func(wrong, hint string) error { return &valueError{File: src.file, Wrong: wrong, Hint: hint} }
	if len(data) > maxSize {
		return nil, whole("is larger than 1 MiB", "is this the right file?")
	}
	if !utf8.Valid(data) || bytes.ContainsFunc(data, isControl) {
		return nil, whole("is not a text file", "write YAML in UTF-8")
	}
	tokens := lexer.Tokenize(string(data))
	if err := checkTokens(src, tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxError(src, err)
	}
	docs := slices.DeleteFunc(file.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	switch len(docs) {
	case 0:
		return nil, whole("holds no configuration", "write at least one pool:\n"+smallest)
	case 1:
		return docs[0].Body, nil
	default:
		return nil, src.atPlace(placeOf(docs[1].Body, ""), "", "a second document begins here", "remove the line ---, and keep one configuration per file")
	}
}

const smallest = `
  pools:
    - name: default
      k: 8
      upstreams: ["http://127.0.0.1:9000"]`

func isControl(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f }

// checkTokens refuses files that would keep the parser busy for minutes: its time grows
// with the square of the nesting, and of the keys in one group.
func checkTokens(src *source, tokens token.Tokens) error {
	const deepest, perLine, mostKeys = 32, 4096, 30_000
	depth, line, inLine, keys := 0, 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, inLine = t.Position.Line, 0
		}
		inLine++
		//lint:ignore exhaustive the others cost nothing
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.MappingValueType:
			keys++
		}
		at := place{line: t.Position.Line, column: t.Position.Column}
		if depth > deepest {
			return src.atPlace(at, "", fmt.Sprintf("is nested deeper than %d", deepest), "is a ] or } missing?")
		}
		if keys > mostKeys {
			return src.atPlace(at, "", fmt.Sprintf("has more than %d keys", mostKeys), "is this the right file?")
		}
		if inLine > perLine {
			return src.atPlace(at, "", fmt.Sprintf("has more than %d words in one line", perLine), "write one entry per line")
		}
	}
	return nil
}

func syntaxError(src *source, err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil {
		return &valueError{File: src.file, Wrong: "is not YAML", Hint: quote(err.Error())}
	}
	at := ye.GetToken().Position
	if line := src.line(at.Line); strings.HasPrefix(strings.TrimLeft(line, " "), "\t") {
		return src.atPlace(place{line: at.Line, column: strings.IndexByte(line, '\t') + 1}, "", "a tab stands where spaces belong", "indent with spaces: YAML takes no tabs there")
	}
	return src.atPlace(place{line: at.Line, column: at.Column}, "", "is not YAML: "+strings.ReplaceAll(ye.GetMessage(), "\t", `\t`), "check indentation, quotes and brackets from here upwards")
}
