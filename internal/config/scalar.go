package config

import (
	"encoding"
	"math"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

func isScalar(node ast.Node) bool {
	_, ok := node.(ast.ScalarNode)
	return ok
}

func text(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	default:
		return "", false
	}
}

func wholeNumber(node ast.Node) (int64, bool) {
	n, ok := node.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch i := n.Value.(type) {
	case int64:
		return i, true
	case uint64:
		return int64(i), i <= math.MaxInt64 // the caller checks ok
	default:
		return 0, false
	}
}

// isDigits reports whether node is a whole number without quotes, however
// long.
func isDigits(node ast.Node) bool {
	t := node.GetToken()
	return (t.Type == token.StringType || t.Type == token.IntegerType) && t.Value != "" && strings.Trim(t.Value, "0123456789") == ""
}

func number(node ast.Node) (float64, bool) {
	if f, ok := node.(*ast.FloatNode); ok {
		return f.Value, true
	}
	n, ok := wholeNumber(node)
	return float64(n), ok
}

// parseInto parses s as v's type wants it.
func parseInto(s string, v reflect.Value) error {
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		return assign(p, s, parseDuration)
	case **url.URL:
		return assign(p, s, parseUpstream)
	case *netip.Prefix:
		return assign(p, s, parsePrefix)
	case *netip.Addr:
		return assign(p, s, parseAddr)
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(s)) // a problemError
	default:
		return problem("cannot be read", "report this as a defect of kgate")
	}
}

func assign[T any](to *T, s string, parse func(string) (T, error)) error {
	t, err := parse(s)
	if err == nil {
		*to = t
	}
	return err
}
