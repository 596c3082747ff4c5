package config

import (
	"strings"
	"testing"
)

const sharedK = `
pools:
  - name: llm
    upstreams: [{url: "http://10.0.2.1:8000", k: 2}, {url: "http://10.0.2.2:8000", k: 4}]
  - name: named
    upstreams: [{url: "http://llm.example.com:8000", k_each: 2}, {url: "https://_https._tcp.example.com", k_each: 3}]
routes:
  - {pool: llm, match: {path_prefix: /llm}}
  - {pool: named}
`

// TestUpstreamK: the pool's k is the sum, and what is printed reads back as the same.
func TestUpstreamK(t *testing.T) {
	c, err := Parse("kgate.yaml", []byte(sharedK))
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Pools[0]; p.K != 6 || p.Upstreams[1].String() != "http://10.0.2.2:8000#k=4" {
		t.Errorf("k %d, %v", p.K, p.Upstreams)
	}
	if p := c.Pools[1]; p.K != 5 || p.Upstreams[0].String() != "http://llm.example.com:8000#k_each=2" {
		t.Errorf("k %d, %v", p.K, p.Upstreams)
	}
	printed := string(c.YAML())
	if want := `upstreams: [{url: "http://10.0.2.1:8000", k: 2}, {url: "http://10.0.2.2:8000", k: 4}]`; !strings.Contains(printed, want) || !strings.Contains(printed, ", k_each: 3}") {
		t.Errorf("%s is not in\n%s", want, printed)
	}
	again, err := Parse("printed.yaml", c.YAML())
	if err != nil {
		t.Fatal(err)
	}
	if text := string(again.YAML()); text != printed || again.Pools[0].K != 6 {
		t.Errorf("k %d, and not the same again:\n%s", again.Pools[0].K, text)
	}
}

// TestUpstreamKFlag: a flag has it behind the URL.
func TestUpstreamKFlag(t *testing.T) {
	c, err := LoadWith("", Overrides{Upstream: []string{"http://10.0.2.1:8000#k=2", "http://10.0.2.2:8000#k=4"}, Name: "gw-1"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Pools[0].K != 6 {
		t.Errorf("k %d", c.Pools[0].K)
	}
	k := 6
	_, err = LoadWith("", Overrides{Upstream: []string{"http://10.0.2.1:8000#k=2"}, K: &k, Name: "gw-1"})
	if err == nil || !strings.Contains(err.Error(), "stands beside the k of the upstreams") {
		t.Errorf("k beside them: %v", err)
	}
}
