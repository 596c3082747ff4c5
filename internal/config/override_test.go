package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
)

func ptr[T any](v T) *T { return &v }

func parseMust(t *testing.T, s string) netip.Addr {
	t.Helper()
	addr, err := parseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFlagsAlone(t *testing.T) {
	c, err := LoadWith("", Overrides{
		Upstream: []string{"http://127.0.0.1:9000", "http://127.0.0.1:9001"}, K: ptr(3),
		Name: "gw-1", DataDir: "/tmp/x", Advertise: "10.0.0.1",
		ListenHTTP: ":1", ListenAdmin: "localhost:2", ListenPeer: ":3", ListenHTTPS: ":5", TLSCert: "c", TLSKey: "k",
		ClusterKeyFile: "cluster.key", Join: []string{"10.0.0.2:7080"}, BootstrapExpect: ptr(3), LogLevel: "debug", LogFormat: "text", DrainTimeout: "5m",
	})
	if err != nil {
		t.Fatal(err)
	}
	p := c.Pools[0]
	if len(c.Pools) != 1 || p.Name != defaultPoolName || p.K != 3 || fmt.Sprint(p.Upstreams) != "[http://127.0.0.1:9000 http://127.0.0.1:9001]" {
		t.Errorf("pools = %+v", c.Pools)
	}
	if len(c.Routes) != 1 || c.Routes[0].Pool != defaultPoolName || !c.Routes[0].Match.all() {
		t.Errorf("routes = %+v", c.Routes)
	}
	l := c.Listen
	if got, want := strings.Join([]string{l.HTTP, l.Admin, l.Peer, l.HTTPS, l.TLS.Cert, l.TLS.Key, c.Cluster.KeyFile}, " "), ":1 localhost:2 :3 :5 c k cluster.key"; got != want {
		t.Errorf("listen = %s, want %s", got, want)
	}
	got := fmt.Sprintf("%v %v %v %v %v", c.Node, c.Cluster.Join, c.Cluster.BootstrapExpect, c.Log, c.DrainTimeout())
	if want := "{gw-1 gateway /tmp/x 10.0.0.1 } [10.0.0.2:7080] 3 {debug text true} 5m0s"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestEveryOverrideCounts sets one field at a time: none may be forgotten.
func TestEveryOverrideCounts(t *testing.T) {
	typ := reflect.TypeFor[Overrides]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		c := mustParse(t, minimal+"listen: {https: ':8443', tls: {cert: c.pem, key: k.pem}}\ncluster: {key_file: cluster.key}\n")
		if name == "Witness" {
			c = mustParse(t, "node: {role: gateway}\ncluster: {bootstrap_expect: 3, key_file: cluster.key}\n"+minimal)
			c.Pools, c.Routes = nil, nil
		}
		before := fmt.Sprintf("%+v", *c)
		var o Overrides
		switch f := reflect.ValueOf(&o).Elem().Field(i); {
		case name == "Pool": // only tells which
			continue
		case name == "Upstream":
			o.Upstream = []string{"http://127.0.0.1:1"}
		case name == "Join":
			o.Join = []string{"10.0.0.9:7080"}
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.Pointer:
			f.Set(reflect.ValueOf(ptr(7)))
		default:
			f.SetString(map[string]string{"LogLevel": "warn", "DrainTimeout": "7m", "LogFormat": "text", "Advertise": "10.0.0.7", "Name": "x", "DataDir": "x", "AdminTokenFile": "x", "TLSCert": "x", "TLSKey": "x"}[name])
			if f.String() == "" {
				f.SetString("127.0.0.1:1234")
			}
		}
		if err := applied(c, o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if fmt.Sprintf("%+v", *c) == before {
			t.Errorf("%s changes nothing", name)
		}
		tag := typ.Field(i).Tag
		if !strings.Contains(flagName(tag.Get("name")), "("+tag.Get("env")+")") || tag.Get("help") == "" {
			t.Errorf("%s: flag %s, variable %s, help %q", name, tag.Get("name"), tag.Get("env"), tag.Get("help"))
		}
	}
}

const twoPools = `
pools:
  - {name: downloads, k: 8, upstreams: ["http://127.0.0.1:9000"]}
  - {name: uploads, k: 2, upstreams: ["http://127.0.0.1:9001"]}
routes:
  - {pool: uploads, match: {methods: [PUT]}}
  - {pool: downloads}
`

func TestFlagsOverFile(t *testing.T) {
	c := mustParse(t, minimal)
	if err := applied(c, Overrides{K: ptr(9)}); err != nil || c.Pools[0].K != 9 || c.Pools[0].Upstreams[0].Port() != "9000" {
		t.Errorf("the only pool: %+v, %v", c.Pools, err)
	}
	c = mustParse(t, twoPools)
	if err := applied(c, Overrides{Pool: "uploads", K: ptr(5), Upstream: []string{"http://127.0.0.1:1"}}); err != nil {
		t.Fatal(err)
	}
	if c.Pools[0].K != 8 || c.Pools[1].K != 5 || c.Pools[1].Upstreams[0].Port() != "1" || len(c.Routes) != 2 {
		t.Errorf("pool by name: %+v", c)
	}
}

func TestBadOverrides(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		o    Overrides
		want []string // parts of the error
	}{
		"nothing":      {"", Overrides{}, []string{"pools: there is no pool", "--upstream"}},
		"no k":         {"", Overrides{Upstream: []string{"http://127.0.0.1:1"}}, []string{"--k (KGATE_K): is missing", "--k 8"}},
		"no upstream":  {"", Overrides{K: ptr(3)}, []string{"--upstream (KGATE_UPSTREAM): is missing"}},
		"bad values":   {"", Overrides{Upstream: []string{"localhost:9000"}, K: ptr(0), ListenHTTP: "8080", LogLevel: "inf"}, []string{"--upstream (KGATE_UPSTREAM): pools[0].upstreams[0]:", "write http://localhost:9000", "--k (KGATE_K): pools[0].k: 0 is out of range", `--listen-http (KGATE_LISTEN_HTTP): listen.http: "8080" has no colon`, "did you mean info?"}},
		"bad pool":     {"", Overrides{Upstream: []string{"http://a"}, K: ptr(1), Pool: "A B"}, []string{`--pool (KGATE_POOL): pools[0].name: "A B" is not a name`}},
		"bad address":  {"", Overrides{Upstream: []string{"http://a"}, K: ptr(1), Advertise: "gw-1"}, []string{`--advertise (KGATE_ADVERTISE): node.advertise: "gw-1" is not an IP address`}},
		"bad join":     {minimal, Overrides{Join: []string{"10.0.0.2"}, BootstrapExpect: ptr(-1)}, []string{"--join (KGATE_JOIN): cluster.join[0]:", "--bootstrap-expect (KGATE_BOOTSTRAP_EXPECT): cluster.bootstrap_expect: -1"}},
		"which pool":   {twoPools, Overrides{K: ptr(5)}, []string{"--pool (KGATE_POOL): is missing, and there are several pools", "downloads, uploads"}},
		"unknown pool": {twoPools, Overrides{Pool: "upload", K: ptr(5)}, []string{`there is no pool "upload"; did you mean uploads?`}},
		"pool alone":   {twoPools, Overrides{Pool: "uploads"}, []string{"--pool (KGATE_POOL): has no effect alone", "--upstream or --k"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			if tc.file != "" {
				c = mustParse(t, tc.file)
			}
			err := applied(c, tc.o)
			if !errors.Is(err, errInvalid) {
				t.Fatalf("%v", err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("no %q in:\n%v", part, err)
				}
			}
		})
	}
}

// TestOverrideMendsFile: a flag replaces what the file has, errors included.
func TestOverrideMendsFile(t *testing.T) {
	file := t.TempDir() + "/kgate.yaml"
	writeFile(t, file, "node: {name: 'not a name'}\nlisten: {http: [1]}\ncluster: {join: [5, 6], key_file: cluster.key}\n"+
		"pools: [{name: a, k: many, upstreams: [ftp://x]}]\n")
	_, err := LoadWith(file, Overrides{})
	if n := strings.Count(fmt.Sprint(err), file+":"); n != 6 {
		t.Errorf("%d errors, want 6:\n%v", n, err)
	}
	c, err := LoadWith(file, Overrides{
		Name: "gw-1", ListenHTTP: ":1", Join: []string{"10.0.0.2:1"}, K: ptr(4), Upstream: []string{"http://127.0.0.1:1"},
	})
	if err != nil || c.Pools[0].K != 4 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestResolve(t *testing.T) {
	addrs := func(list ...string) func() ([]net.Addr, error) {
		var all []net.Addr
		for _, s := range list {
			ip, n, err := net.ParseCIDR(s)
			if err != nil {
				t.Fatal(err)
			}
			n.IP = ip
			all = append(all, n)
		}
		return func() ([]net.Addr, error) { return all, nil }
	}
	host := func() (string, error) { return "host-1", nil }
	failing := errors.New("no such thing")
	for name, tc := range map[string]struct {
		change     func(*Config)
		interfaces func() ([]net.Addr, error)
		want       string
	}{
		"private":          {nil, addrs("127.0.0.1/8", "203.0.113.5/24", "fd00::2/64", "192.168.1.5/24", "10.0.0.5/8"), "192.168.1.5"},
		"IPv6 private":     {nil, addrs("::1/128", "fe80::1/64", "2001:db8::1/64", "fd00::2/64"), "fd00::2"},
		"public only":      {nil, addrs("127.0.0.1/8", "203.0.113.5/24"), "203.0.113.5"},
		"none":             {nil, addrs("127.0.0.1/8", "fe80::1/64"), "127.0.0.1"},
		"given":            {func(c *Config) { c.Node.Advertise = parseMust(t, "10.9.9.9") }, addrs("10.0.0.5/8"), "10.9.9.9"},
		"peer on loopback": {func(c *Config) { c.Listen.Peer = "127.0.0.1:7080" }, addrs("10.0.0.5/8"), "127.0.0.1"},
		"localhost":        {func(c *Config) { c.Listen.Peer = "localhost:7080" }, addrs("10.0.0.5/8"), "127.0.0.1"},
		"peer unspecified": {func(c *Config) { c.Listen.Peer = "0.0.0.0:7080" }, addrs("10.0.0.5/8"), "10.0.0.5"},
	} {
		c := mustParse(t, minimal)
		if tc.change != nil {
			tc.change(c)
		}
		if err := c.resolve(host, tc.interfaces); err != nil || c.Node.Advertise.String() != tc.want || c.Node.Name != "host-1" {
			t.Errorf("%s: %+v, %v; want %s", name, c.Node, err, tc.want)
		}
	}
	c := mustParse(t, minimal)
	if err := c.resolve(func() (string, error) { return "", failing }, addrs()); !errors.Is(err, ErrHost) || !errors.Is(err, failing) {
		t.Errorf("no host name: %v", err)
	}
	if err := c.resolve(func() (string, error) { return "my_host", nil }, addrs()); !errors.Is(err, ErrHost) || !strings.Contains(err.Error(), "node.name") {
		t.Errorf("unusable host name: %v", err)
	}
	if err := c.resolve(host, func() ([]net.Addr, error) { return nil, failing }); !errors.Is(err, ErrHost) {
		t.Errorf("no interfaces: %v", err)
	}
}

// applied puts o on top of c and checks the result.
func applied(c *Config, o Overrides) error { return c.check(c.apply(o)) }
