package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/telemetry"
)

// filled are values for the fields that are no numbers, texts, flags or structs.
var filled = []any{
	func(context.Context) ([]string, error) { return nil, nil },
	[]string{"x"},
	[]*url.URL{{Host: "x"}},
	[]proxy.Route{{Pool: "x"}},
	[]proxy.TCP{{Pool: "x"}},
	[]*proxy.ErrorPage{{}},
	[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	func(*http.Request) netip.Addr { return netip.Addr{} }, func() []string { return nil }, trace.TracerProvider(noop.NewTracerProvider()),
	io.Discard, slog.Default(), new(telemetry.Metrics), prometheus.Gatherer(prometheus.NewRegistry()), func(*telemetry.State) {},
	http.NotFoundHandler(), func() {}, netip.MustParseAddr("10.0.0.1"), []byte("x"),
	[][]byte{[]byte("x")},
}

// fill sets v, which was empty.
func fill(t *testing.T, path string, v reflect.Value) {
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
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	default:
		for _, value := range filled {
			if have := reflect.ValueOf(value); have.Type().AssignableTo(v.Type()) {
				v.Set(have)
				return
			}
		}
		t.Fatalf("%s is a %v: say in this test how it is filled", path, v.Type())
	}
}

// eachField calls do with each field below v, a struct, that is no struct of ours.
func eachField(v reflect.Value, path string, do func(path string, v reflect.Value)) {
	for i := range v.NumField() {
		name := path + "." + v.Type().Field(i).Name
		if v.Type().Field(i).Anonymous {
			continue // package kgate's own test has them
		}
		if f := v.Field(i); f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[netip.Addr]() {
			eachField(f, name, do)
		} else {
			do(name, f)
		}
	}
}

// edited is what c adds to a node.
func edited(c *Config) node.Config {
	out := node.Config{Pools: make([]node.Pool, len(c.Pools)), Logger: slog.New(slog.DiscardHandler)}
	c.edit(&out)
	return out
}

// TestEveryFieldReachesTheNode: no field is forgotten on the way.
func TestEveryFieldReachesTheNode(t *testing.T) {
	elsewhere := map[string]bool{ // what Start itself uses
		"Config.Pools": true, "Config.Process.OnLeave": true,
	}
	seen := 0
	for name, target := range map[string]func(*Config) any{
		"Config": func(c *Config) any { return c }, "Pool": func(c *Config) any { return &c.Pools[0] },
	} {
		eachField(reflect.ValueOf(target(&Config{Pools: make([]Pool, 1)})).Elem(), name, func(path string, _ reflect.Value) {
			if elsewhere[path] {
				return
			}
			seen++
			empty, c := Config{Pools: make([]Pool, 1)}, Config{Pools: make([]Pool, 1)}
			eachField(reflect.ValueOf(target(&c)).Elem(), name, func(at string, v reflect.Value) {
				if at == path {
					fill(t, path, v)
				}
			})
			if fmt.Sprintf("%#v", edited(&c)) == fmt.Sprintf("%#v", edited(&empty)) {
				t.Errorf("%s changes nothing", path)
			}
		})
	}
	if seen < 30 {
		t.Errorf("%d fields", seen)
	}
}
