package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/config"
)

// poolSettings says which field of a gateway.Pool an option of the file sets.
var poolSettings = map[string]string{
	"Name": "Name", "K": "K", "Binding": "EarlyBinding",
	"Upstreams": "Upstreams", "Backup": "Backup",
	"Health.Path": "Health.Path", "Health.Interval": "Health.Interval", "Health.Timeout": "Health.Timeout",
	"Health.UnhealthyAfter": "Health.UnhealthyAfter", "Health.SlowStart": "Health.SlowStart",
	"Queue.Timeout": "QueueTimeout", "Queue.Limit": "QueueLimit", "Queue.Order": "Fair", "Queue.Weights": "ClientWeights",
	"Queue.PerClient.Key.Header": "ClientHeader", "Queue.PerClient.Limit": "ClientLimit", "Queue.PerClient.InFlight": "ClientInFlight",
	"Queue.Page.Enabled": "Page", "Queue.Page.Keep": "", "Queue.Page.Template": "", // without a page these mean nothing
	"Queue.PerClient.Tickets": "ClientTickets", "Hold.Max": "HoldMax", "Hold.Idle": "HoldIdle", "Hold.MinUpload": "MinUpload", "Hold.MinDownload": "MinDownload",
	"Rate.Down": "RateDown", "Rate.Up": "RateUp", "Rate.PerRequest": "RequestRate",
	"Reclaim": "ReclaimHold", "Transport.DialTimeout": "Transport.DialTimeout",
	"Transport.ResponseHeaderTimeout": "Transport.ResponseHeaderTimeout", "Transport.IdleTimeout": "Transport.IdleTimeout",
	"Transport.Resolve": "Transport.Resolve", "Transport.Host": "Transport.Host",
	"Transport.TLS.CA": "Transport.TLS", "Transport.TLS.InsecureSkipVerify": "Transport.TLS", "Transport.ProxyProtocol": "Transport.ProxyHeader",
	"Fence": "Fence", "Tickets": "Tickets", "TicketTTL": "TicketTTL",
}

// leaves calls do with each field of a struct that is no struct itself.
func leaves(v reflect.Value, path string, do func(path string, v reflect.Value)) {
	if v.Kind() != reflect.Struct {
		do(path, v)
		return
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() {
			leaves(v.Field(i), strings.TrimPrefix(path+"."+f.Name, "."), do)
		}
	}
}

// change gives a field another value that the file may have.
func change(t *testing.T, path string, v reflect.Value, ca string) {
	t.Helper()
	words := map[string]string{
		"Binding": string(admission.BindingEarly), "Reclaim": string(admission.ReclaimHold), "Queue.Order": string(config.OrderFair),
		"Transport.ProxyProtocol": string(config.ProxyV1), "Transport.TLS.CA": ca,
	}
	switch {
	case words[path] != "":
		v.SetString(words[path])
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.CanInt():
		v.SetInt(v.Int() + int64(time.Second))
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Type() == reflect.TypeFor[[]config.ClientWeight]():
		v.Set(reflect.ValueOf([]config.ClientWeight{{Client: "x", Weight: 3}}))
	case v.Type() == reflect.TypeFor[[]*url.URL]():
		v.Set(reflect.ValueOf([]*url.URL{{Scheme: "http", Host: path}}))
	default:
		t.Fatalf("%s is a %v: say in this test how it changes", path, v.Type())
	}
}

// TestPoolSettings: each option of a pool sets the field that it is for, and no other.
func TestPoolSettings(t *testing.T) {
	dir := t.TempDir()
	mustKeygen(t, dir, "--ca")
	fields := func(p config.Pool) map[string]string {
		pools, err := nodePools(&config.Config{Pools: []config.Pool{p}})
		if err != nil {
			t.Fatal(err)
		}
		out := make(map[string]string)
		leaves(reflect.ValueOf(pools[0]), "", func(path string, v reflect.Value) {
			path = strings.TrimPrefix(path, "Pool.")
			if out[path] = fmt.Sprint(v.Interface()); v.Kind() == reflect.Pointer {
				out[path] = fmt.Sprint(v.IsNil())
			}
		})
		return out
	}
	before, seen := fields(config.DefaultPool()), 0
	pool := config.DefaultPool()
	leaves(reflect.ValueOf(&pool).Elem(), "", func(path string, _ reflect.Value) {
		seen++
		p := config.DefaultPool()
		leaves(reflect.ValueOf(&p).Elem(), "", func(at string, v reflect.Value) {
			if at == path {
				change(t, path, v, filepath.Join(dir, "ca.pem"))
			}
		})
		var changed []string
		for field, value := range fields(p) {
			if value != before[field] {
				changed = append(changed, field)
			}
		}
		slices.Sort(changed)
		if got := strings.Join(changed, ", "); got != poolSettings[path] {
			t.Errorf("%s sets %q, want %q", path, got, poolSettings[path])
		}
	})
	if seen != len(poolSettings) {
		t.Errorf("%d options, %d in this test", seen, len(poolSettings))
	}
}
