package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

const reloadable = `
node: {name: gw-1}
listen: {https: ":8443", tls: {cert: a.pem, key: a-key.pem}}
pools:
  - {name: downloads, k: 8, upstreams: ["http://127.0.0.1:9000"]}
  - {name: uploads, k: 1, upstreams: ["http://127.0.0.1:9001"], reclaim: hold, hold: {max: 1m}}
  - {name: old, k: 1, upstreams: ["http://127.0.0.1:9002"]}
routes:
  - {pool: uploads, match: {methods: [PUT]}}
  - {pool: old, match: {path_prefix: /old/}}
  - {pool: downloads}
telemetry: {otlp_endpoint: "http://user:geheim@127.0.0.1:4317"}
`

// TestReload: what differs is told, and what needs a restart stays as it is.
func TestReload(t *testing.T) {
	c := mustParse(t, reloadable)
	text := reloadable
	for _, edit := range [][2]string{
		{"name: gw-1", "name: gw-2"},
		{`":8443", tls: {cert: a.pem`, `":9443", header_timeout: 3s, tls: {cert: b.pem`},
		{"k: 8,", "k: 9, binding: early, queue: {timeout: 90m, limit: 5, order: fair, per_client: {key: 'header:x-key', limit: 2}}, fence: false,"},
		{"127.0.0.1:9000\"", "127.0.0.1:9000\", \"http://127.0.0.1:9009\""},
		{"max: 1m", "max: 2m"},
		{"  - {name: old, k: 1, upstreams: [\"http://127.0.0.1:9002\"]}\n", "  - {name: new, k: 3, upstreams: [\"http://127.0.0.1:9003\"], queue: {timeout: 5s}}\n"},
		{"  - {pool: old, match: {path_prefix: /old/}}\n", "  - {pool: new, match: {path_prefix: /new/}}\n  - {pool: uploads, match: {host: up.example.com}}\n"},
		{"geheim", "verborgen"},
	} {
		if !strings.Contains(text, edit[0]) {
			t.Fatalf("no %q to edit", edit[0])
		}
		text = strings.Replace(text, edit[0], edit[1], 1)
	}
	text += "drain: {timeout: 5m, waiting: finish}\nlog: {level: debug}\ntrusted_proxies: [10.0.0.0/8]\n"
	running, changes := c.Reload(mustParse(t, text))
	var shown strings.Builder
	for _, ch := range changes {
		fmt.Fprintf(&shown, "%s: %s -> %s (%s)\n", ch.Key, ch.Old, ch.New, ch.Effect)
	}
	checkGolden(t, "testdata/changes.golden", shown.String())
	for _, secret := range []string{"MDEy", "MTIz", "geheim", "verborgen", "0123", "1234"} {
		if strings.Contains(shown.String(), secret) {
			t.Errorf("shows the secret %s", secret)
		}
	}

	if !reflect.DeepEqual(running.Node, c.Node) || !reflect.DeepEqual(running.Cluster, c.Cluster) ||
		running.Listen.HTTPS != ":8443" || running.Listen.HeaderTimeout != 10*time.Second || running.Telemetry.OTLPEndpoint != c.Telemetry.OTLPEndpoint {
		t.Errorf("what needs a restart has changed: %+v", running)
	}
	downloads, _ := running.pool("downloads")
	if running.Listen.TLS.Cert != "b.pem" || running.Log.Level != "debug" || len(running.TrustedProxies) != 1 || len(running.Routes) != 4 || downloads.Queue.Limit != 5 {
		t.Errorf("what needs none has not: %+v", running)
	}
	if again, changes := running.Reload(running); len(changes) > 0 || !reflect.DeepEqual(again.Pools, running.Pools) {
		t.Errorf("nothing has changed, but %v", changes)
	}
}

// TestEffects holds the table to keys that exist.
func TestEffects(t *testing.T) {
	all := leaves(reflect.TypeFor[Config](), "")
	for _, e := range effects {
		found := false
		for _, key := range all {
			found = found || within(indexes.ReplaceAllString(key, "[]"), e.key)
		}
		if !found {
			t.Errorf("there is no key %s", e.key)
		}
	}
}

func TestLines(t *testing.T) {
	_, err := Parse("kgate.yaml", []byte("log: {level: loud}\npools: []\n"))
	lines := Lines(err)
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "kgate.yaml:1:14: log.level:") || strings.Contains(strings.Join(lines, ""), "\n") {
		t.Errorf("%q", lines)
	}
}

// TestReloadUpstreamK: a k of upstreams counts for a new pool only.
func TestReloadUpstreamK(t *testing.T) {
	const file = "node: {name: gw}\npools:\n  - {name: p, %s}\n"
	plain, each := `k: 4, upstreams: ["http://h:1", "http://h:2"]`, `upstreams: [{url: "http://h:1", k: 2}, {url: "http://h:2", k: 2}]`
	for _, change := range []struct {
		from, to string
		want     Effect
	}{
		{plain, each, EffectNewPool},
		{each, plain, EffectNewPool},
		{each, strings.Replace(each, "k: 2", "k: 3", 1), EffectNewPool},
		{plain, strings.Replace(plain, "h:2", "h:3", 1), EffectReload},
	} {
		_, changes := mustParse(t, fmt.Sprintf(file, change.from)).Reload(mustParse(t, fmt.Sprintf(file, change.to)))
		for _, c := range changes {
			if c.Effect != change.want {
				t.Errorf("%s: %s -> %s (%s), want %s", c.Key, c.Old, c.New, c.Effect, change.want)
			}
		}
		if len(changes) == 0 {
			t.Error("no change")
		}
	}
}
