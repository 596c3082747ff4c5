// Package fields is for the tests that no field of a configuration is forgotten on its way into a
// node.
package fields

import (
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// values for the fields that are no numbers, texts, flags or structs.
var values = []any{
	[]string{"x"},
	[]byte("x"),
	[][]byte{[]byte("x")},
	map[string]float64{"x": 1},
	[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	netip.MustParseAddr("10.0.0.1"),
	func(*http.Request) netip.Addr { return netip.Addr{} }, slog.Default(),
}

// Each calls do with the name of each field of v, a struct, and with a function that fills it in
// another struct of v's type, which is empty. More has values for types that only the caller knows.
// Embedded structs, and what only tests can set, are left out.
func Each(t *testing.T, name string, v any, more []any, do func(path string, fill func(into any))) {
	t.Helper()
	each(reflect.ValueOf(v).Elem(), name, func(path string, _ reflect.Value) {
		do(path, func(into any) {
			each(reflect.ValueOf(into).Elem(), name, func(at string, f reflect.Value) {
				if at == path {
					fill(t, path, f, more)
				}
			})
		})
	})
}

// each calls do with each field below v that is no struct of ours.
func each(v reflect.Value, path string, do func(path string, v reflect.Value)) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch f, name := v.Field(i), path+"."+field.Name; {
		case field.Anonymous, !field.IsExported():
		case f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[netip.Addr]():
			each(f, name, do)
		default:
			do(name, f)
		}
	}
}

// fill sets v, which was empty.
func fill(t *testing.T, path string, v reflect.Value, more []any) {
	t.Helper()
	switch {
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.CanInt():
		v.SetInt(int64(time.Second))
	case v.CanUint():
		v.SetUint(1)
	case v.CanFloat():
		v.SetFloat(0.5)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Pointer && !known(v, values) && !known(v, more):
		v.Set(reflect.New(v.Type().Elem()))
	case !known(v, values) && !known(v, more):
		t.Fatalf("%s is a %v: say in this test how it is filled", path, v.Type())
	}
}

// known sets v to the first of the values that fits.
func known(v reflect.Value, values []any) bool {
	for _, value := range values {
		if have := reflect.ValueOf(value); have.Type().AssignableTo(v.Type()) {
			v.Set(have)
			return true
		}
	}
	return false
}
