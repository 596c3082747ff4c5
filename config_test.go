package kgate

import (
	"fmt"
	"testing"

	"github.com/kgate/kgate/internal/inside/fields"
)

// TestEveryFieldReachesTheNode: no field is forgotten on the way.
func TestEveryFieldReachesTheNode(t *testing.T) {
	elsewhere := map[string]bool{ // what this package itself uses
		"Config.Pools": true, "Config.Peers.Key": true, "Config.Peers.Insecure": true,
	}
	seen := 0
	for name, target := range map[string]func(*Config) any{
		"Config": func(c *Config) any { return c }, "Pool": func(c *Config) any { return &c.Pools[0] },
	} {
		empty := Config{Pools: make([]Pool, 1)}
		fields.Each(t, name, target(&empty), nil, func(path string, fill func(any)) {
			if elsewhere[path] {
				return
			}
			seen++
			c := Config{Pools: make([]Pool, 1)}
			fill(target(&c))
			if fmt.Sprintf("%#v", c.node()) == fmt.Sprintf("%#v", empty.node()) {
				t.Errorf("%s changes nothing", path)
			}
		})
	}
	if seen < 25 {
		t.Errorf("%d fields", seen)
	}
}
