package config

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

const minimal = "pools: [{name: a, k: 3, upstreams: ['http://127.0.0.1:9000']}]\n"

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("kgate.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// load reads and checks the file at path, and asks nothing of this host.
func load(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// TestExamples holds the files that users copy to what the code accepts.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		if filepath.Base(file) == "compose.yaml" {
			continue
		}
		if _, err := load(file); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// TestEveryKey reads a file that sets every key to something else than its
// default, and finds every one of them again.
func TestEveryKey(t *testing.T) {
	c, err := load("testdata/every-key.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%+v", struct {
		Node      Node
		Listen    Listen
		Cluster   Cluster
		Pools     []Pool
		Routes    []Route
		Log       Log
		Telemetry Telemetry
		Trusted   any
	}{c.Node, c.Listen, c.Cluster, c.Pools, c.Routes, c.Log, c.Telemetry, c.TrustedProxies})
	checkGolden(t, "testdata/every-key.golden", strings.ReplaceAll(got, "} ", "}\n")+"\n")
	pool, _ := c.pool("downloads")
	for _, path := range leaves(reflect.TypeFor[Config](), "") {
		if path == "cluster.key_file" {
			continue // excludes tls
		}
		if !c.src.given(path) && !c.src.given(strings.Replace(path, "routes[0].upstreams", "routes[1].upstreams", 1)) {
			t.Errorf("%s is not in every-key.yaml", path)
		}
	}
	if reflect.DeepEqual(pool.Queue, DefaultPool().Queue) || reflect.DeepEqual(c.Listen, Default().Listen) {
		t.Error("the file's values did not arrive")
	}
}

// leaves lists the paths of the schema, with index 0 for every list.
func leaves(typ reflect.Type, path string) []string {
	var all []string
	for i := range typ.NumField() {
		tag := typ.Field(i).Tag.Get("yaml")
		if tag == "" {
			continue
		}
		at, field := joinKey(path, tag), typ.Field(i).Type
		if field.Kind() == reflect.Slice && kindOf(reflect.Zero(field)) == kindList && kindOf(reflect.Zero(field.Elem())) == kindMapping {
			at, field = at+"[0]", field.Elem()
		}
		if kindOf(reflect.Zero(field)) == kindMapping {
			all = append(all, leaves(field, at)...)
			continue
		}
		all = append(all, at)
	}
	return all
}

func TestDefaults(t *testing.T) {
	c := mustParse(t, minimal)
	want := DefaultPool()
	want.Name, want.K, want.Upstreams = "a", 3, c.Pools[0].Upstreams
	if !reflect.DeepEqual(c.Pools[0], want) {
		t.Errorf("pool = %+v", c.Pools[0])
	}
	if len(c.Routes) != 1 || c.Routes[0].Pool != "a" || !c.Routes[0].Match.all() {
		t.Errorf("routes = %+v, want one that leads everything to the pool", c.Routes)
	}
	if err := Default().Validate(); err == nil || !strings.Contains(err.Error(), "there is no pool") {
		t.Errorf("Default().Validate() = %v", err)
	}
	if reflect.DeepEqual(c.Pools[0].Queue, Queue{}) {
		t.Error("no queue defaults")
	}
}

// TestNulls: a list or group whose entries are all commented out is as if it
// were not there.
func TestNulls(t *testing.T) {
	c := mustParse(t, minimal+"cluster:\n  join:\n  #- 10.0.0.2:7080\nlog:\ntrusted_proxies:\n")
	if c.Cluster.Lease != 3*time.Second || c.Log != Default().Log || c.Cluster.Join != nil {
		t.Errorf("%+v", c)
	}
}

func TestAliasesAndMerge(t *testing.T) {
	c := mustParse(t, `
pools:
  - &base
    name: a
    k: &k 8
    queue: &queue {timeout: 5s, limit: 7}
    upstreams: &up ["http://127.0.0.1:9000"]
  - <<: *base
    name: b
    queue: {limit: 9}
  - {name: c, k: *k, queue: *queue, upstreams: *up}
  - &d {<<: [*base, {binding: early}], name: d}
  - {<<: *d, name: e, k: 9}
routes:
  - {pool: a, match: {host: "*.example.com"}}
  - pool: b
`)
	a, b, cc, d := c.Pools[0], c.Pools[1], c.Pools[2], c.Pools[3]
	if b.K != 8 || b.Queue.Limit != 9 || b.Queue.Timeout != time.Minute || b.Name != "b" {
		t.Errorf("b = %+v: what it says itself must win over what it merges", b)
	}
	if cc.K != 8 || !reflect.DeepEqual(cc.Queue, a.Queue) || cc.Upstreams[0].String() != "http://127.0.0.1:9000" {
		t.Errorf("c = %+v", cc)
	}
	if d.Binding != admission.BindingEarly || d.K != 8 {
		t.Errorf("d = %+v", d)
	}
	if e := c.Pools[4]; e.Binding != admission.BindingEarly || e.K != 9 || !reflect.DeepEqual(e.Queue, a.Queue) || e.Name != "e" {
		t.Errorf("e = %+v, what it merges merges, too", e)
	}
}

func TestBootstrap(t *testing.T) {
	for _, tc := range []struct {
		join   []string
		expect int
		want   int
	}{
		{nil, 0, 1},
		{nil, 1, 1},
		{nil, 3, 3},
		{[]string{"10.0.0.2:7080"}, 0, 0},
		{[]string{"10.0.0.2:7080"}, 1, 0},
		{[]string{"10.0.0.2:7080"}, 3, 3},
	} {
		c := Config{Cluster: Cluster{Join: tc.join, BootstrapExpect: tc.expect}}
		if got := c.Bootstrap(); got != tc.want {
			t.Errorf("join %v, expect %d: %d, want %d", tc.join, tc.expect, got, tc.want)
		}
	}
}

// TestDrainTimeout: a gateway that stops gives requests as long as their pools do.
func TestDrainTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"{name: a, k: 1}":                  30 * time.Minute,
		"{name: a, k: 1, hold: {max: 5m}}": 5 * time.Minute,
		"{name: a, k: 1, hold: {max: 5m}}, {name: b, k: 1, hold: {max: 10m}}": 10 * time.Minute,
		"{name: a, k: 1, hold: {max: 5s}}":                                    30 * time.Second,
		"{name: a, k: 1, hold: {max: 2h}}":                                    30 * time.Minute,
		"{name: a, k: 1, hold: {max: 0s}}, {name: b, k: 1, hold: {max: 5m}}":  30 * time.Minute,
	} {
		if got := mustParse(t, "pools: ["+text+"]").DrainTimeout(); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		if got := mustParse(t, "drain: {timeout: 2h}\npools: ["+text+"]").DrainTimeout(); got != 2*time.Hour {
			t.Errorf("%s, with a timeout: %v", text, got)
		}
	}
}

// TestTimeoutsDiffer: no two bounds that end a request are equal, so that its length tells which
// one did.
func TestTimeoutsDiffer(t *testing.T) {
	for _, text := range []string{"{name: a, k: 1}", "{name: a, k: 1, hold: {idle: 60s}}", "{name: a, k: 1, hold: {idle: 5s}}"} {
		p := mustParse(t, "pools: ["+text+"]").Pools[0]
		if q, h, i := p.Queue.Timeout, p.Transport.ResponseHeaderTimeout, p.Hold.Idle; q == h || h >= i || q == i && !strings.Contains(text, "idle") {
			t.Errorf("%s: queue.timeout %v, response_header_timeout %v, hold.idle %v", text, q, h, i)
		}
	}
}

func TestValidateBuiltInCode(t *testing.T) {
	c := Config{src: newSource("", nil)}
	err := c.Validate()
	if !errors.Is(err, errInvalid) {
		t.Fatalf("the zero Config: %v", err)
	}
	for _, key := range []string{"pools:", "drain.waiting:", "listen.http:", "cluster.lease:", "log.level:", "log.format:"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("no word about %s in:\n%v", key, err)
		}
	}
	d := Default()
	d.Pools = []Pool{DefaultPool()}
	d.Pools[0].Name, d.Pools[0].K = "a", kmutex.MaxK
	d.Pools[0].Upstreams = []*url.URL{{Scheme: "h2c", Host: "127.0.0.1:9000"}}
	if err := d.Validate(); err != nil {
		t.Errorf("valid: %v", err)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := load(filepath.Join(dir, "absent.yaml")); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "absent.yaml") {
		t.Errorf("absent: %v", err)
	}
	if _, err := load(dir); err == nil {
		t.Error("a folder was read")
	}
	large := filepath.Join(dir, "large.yaml")
	f, err := os.Create(large)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(100<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := load(large); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("100 MiB: %v", err)
	}
}

// TestCheckFiles: what a file names must be there, each error points at its line.
func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	pem, secret := filepath.Join(dir, "a.pem"), filepath.Join(dir, "token")
	writeFile(t, pem, "PEM")
	writeFile(t, secret, "token")
	text := strings.NewReplacer("DIR", dir).Replace(`node: {admin_token_file: DIR/token}
listen:
  https: ":8443"
  tls:
    cert: DIR/a.pem
    key: DIR/absent.pem
cluster:
  tls:
    ca: DIR/a.pem
    cert: DIR
    key: DIR/a.pem
pools:
  - {name: a, k: 1, upstreams: ["https://127.0.0.1:9000"]}
  - {name: b, k: 1, upstreams: ["https://127.0.0.1:9000"], transport: {tls: {ca: DIR/nowhere/ca.pem}}}
routes: [{pool: a}]
`)
	c, err := Parse("kgate.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "testdata/files.golden", strings.ReplaceAll(strings.Join(Lines(c.CheckFiles()), "\n"), dir, "DIR")+"\n")
	for _, file := range []string{"absent.pem", "nowhere/ca.pem"} {
		text = strings.Replace(text, filepath.Join(dir, file), pem, 1)
	}
	if err := mustParse(t, strings.Replace(text, "cert: "+dir+"\n", "cert: "+pem+"\n", 1)).CheckFiles(); err != nil {
		t.Errorf("all are there: %v", err)
	}
	every, err := load("testdata/every-key.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(Lines(every.CheckFiles())); n != len(fileKeys)-2 { // it names no upstream's ca, and no cluster key
		t.Errorf("%d of %d files are missed", n, len(fileKeys)-2)
	}
}

// TestHostileSizes feeds a quarter of a megabyte of what costs a naive parser
// the square of its length, or its stack. The bound is generous: unchecked, a
// whole megabyte of the worst takes minutes.
func TestHostileSizes(t *testing.T) {
	for name, tc := range map[string]struct{ unit, want string }{
		"brackets":       {"[", "nested deeper than"},
		"braces":         {"{a: ", "nested deeper than"},
		"bracket lines":  {"[\n", "nested deeper than"},
		"dashes":         {"- ", "words in one line"},
		"questions":      {"? ", "words in one line"},
		"anchors":        {"&a ", "words in one line"},
		"tags":           {"!a ", "words in one line"},
		"commas":         {",", "where keys belong"},
		"lines":          {"a: b\n", "more than 30000 keys"},
		"entries":        {"- a\n", "is a list, where keys belong"},
		"quotes":         {`"`, ""},
		"colons":         {":", ""},
		"spaces":         {" ", "no configuration"},
		"question lines": {"?\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Parse("kgate.yaml", []byte(strings.Repeat(tc.unit, maxSize/4/len(tc.unit))))
			if err == nil {
				t.Error("accepted")
			} else if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%.300v; want %s", err, tc.want)
			} else if n := len(err.Error()); n > 64<<10 {
				t.Errorf("an error of %d bytes", n)
			}
			if d := time.Since(start); d > 15*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestManyErrorsAreCut(t *testing.T) {
	_, err := Parse("kgate.yaml", []byte("log:\n"+strings.Repeat("  x1: 1\n  x2: 2\n", 500)))
	if err == nil || strings.Count(err.Error(), "\nkgate.yaml:") > maxErrors || !strings.Contains(err.Error(), "more") {
		t.Errorf("%v", err)
	}
}

func TestAliasBomb(t *testing.T) {
	text := "pools:\n  - &p {name: a, k: 1, upstreams: [" + strings.Repeat(`"http://a",`, 2000) + "]}\n" + strings.Repeat("  - *p\n", 2000)
	_, err := Parse("kgate.yaml", []byte(strings.ReplaceAll(text, ",", ",\n ")))
	if err == nil || !strings.Contains(err.Error(), "more than 200000 values") {
		t.Errorf("%.300v", err)
	}
}

func TestKeyStaysSecret(t *testing.T) {
	for _, broken := range []string{"gossip_key: MDEyMzQ1", "gossip_key: [MDEyMzQ1]", "gossip_key: {MDEyMzQ1: x}", "gosip_key: MDEyMzQ1", "gossip_key:\n    MDEyMzQ1", "gossip_key: &x !t MDEyMzQ1", "key: MDEyMzQ1Njc4OWFiY2RlZg=="} {
		_, err := Parse("kgate.yaml", []byte(minimal+"cluster:\n  lease: 1ms\n  "+broken+"\n"))
		if err == nil || strings.Contains(err.Error(), "MDEyMzQ1") {
			t.Errorf("%s: %v", broken, err)
		}
	}
	for _, upstream := range []string{"http://u:geheim@%zz", "u:geheim@host:1", "http://u:geheim@host", "ftp://u:geheim@host"} {
		_, err := Parse("kgate.yaml", []byte("pools: [{name: a, k: 1, upstreams: ['"+upstream+"']}]\n"))
		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", upstream, err)
		}
	}
}

// TestYAML prints every key and reads it again.
func TestYAML(t *testing.T) {
	c, err := load("testdata/every-key.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := c.YAML()
	checkGolden(t, "testdata/every-key.printed.golden", string(text))
	again := mustParse(t, string(text))
	if _, changes := c.Reload(again); len(changes) > 0 {
		t.Errorf("printed and read again: %+v", changes)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"name", "k", "upstreams", "queue", "response_header_timeout"}
	for word, want := range map[string]string{
		"naem": "name", "kk": "k", "K": "", "upstream": "upstreams", "response_headr_timeout": "response_header_timeout",
		"zzz": "", "": "", "ueue": "queue", strings.Repeat("k", 1000): "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

// FuzzParse: whatever the bytes, an error or a configuration that stands up to
// its own checks.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/broken/*.yaml", "testdata/*.yaml", "../../configs/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("fuzz.yaml", data)
		if (c == nil) == (err == nil) {
			t.Fatalf("%v and %v", c, err)
		}
		if err != nil {
			if !errors.Is(err, errInvalid) {
				t.Fatalf("%v is not ErrInvalid", err)
			}
			_ = err.Error()
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("accepted, then refused: %v", err)
		}
		if err := applied(c, Overrides{}); err != nil {
			t.Fatalf("no overrides: %v", err)
		}
		if bytes.Contains(data, []byte("@")) {
			return // a password is not printed
		}
		again, err := Parse("printed.yaml", c.YAML())
		if err != nil {
			t.Fatalf("printed and refused: %v\n%s", err, c.YAML())
		}
		if _, changes := c.Reload(again); len(changes) > 0 {
			t.Fatalf("printed and read again: %+v\n%s", changes, c.YAML())
		}
	})
}

// TestIdleOfTCP: connections that are no requests may be silent for longer.
func TestIdleOfTCP(t *testing.T) {
	const listen = "listen: {tcp: [{addr: ':873', pool: a}]}\n"
	for text, want := range map[string]time.Duration{
		`upstreams: ["tcp://10.0.1.1:873"]`:                       10 * time.Minute,
		`upstreams: ["tcp://10.0.1.1:873"], hold: {max: 1h}`:      10 * time.Minute,
		`upstreams: ["tcp://10.0.1.1:873"], hold: {idle: 1m}`:     time.Minute,
		`upstreams: ["tcp://10.0.1.1:873"], hold: {idle: 0s}`:     0,
		`upstreams: ["tcp://10.0.1.1:873", "http://10.0.1.1:80"]`: 90 * time.Second,
	} {
		if got := mustParse(t, listen+"pools: [{name: a, k: 1, "+text+"}]\n").Pools[0].Hold.Idle; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// TestMappedNetworks: a network of IPv4 written as IPv6 is that of IPv4, as which clients
// are known.
func TestMappedNetworks(t *testing.T) {
	for text, want := range map[string]string{
		"::ffff:10.0.0.1": "10.0.0.1/32", "::ffff:10.1.2.3/104": "10.0.0.0/8", "::ffff:0:0/96": "0.0.0.0/0", "10.1.2.3/8": "10.0.0.0/8",
		"::/0": "::/0", "::ffff:0:0/95": "::fffe:0:0/95", "fe80::1": "fe80::1/128",
	} {
		if got, err := parsePrefix(text); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v, want %s", text, got, err, want)
		}
	}
}
