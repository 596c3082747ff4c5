package serfring

import (
	"errors"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	good := base("a", "1")
	good.listen(t)
	if err := good.Validate(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no name":    {func(c *Config) { c.Name = "" }, "name is empty"},
		"long name":  {func(c *Config) { c.Name = strings.Repeat("x", 129) }, "at most 128"},
		"no boot":    {func(c *Config) { c.Boot = "" }, "boot id is empty"},
		"no links":   {func(c *Config) { c.Links = nil }, "Links and Carrier are needed"},
		"bad join":   {func(c *Config) { c.Join = []string{"10.0.0.2"} }, `"10.0.0.2" is not host:port`},
		"long tags":  {func(c *Config) { c.Version = strings.Repeat("x", 500) }, "too long together"},
		"everything": {func(c *Config) { *c = Config{} }, "boot id is empty"},
	} {
		c := good.Config
		tt.change(&c)
		err := c.Validate()
		if !errors.Is(err, errConfig) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want something with %q", name, err, tt.want)
		}
		if _, startErr := Start(c); !errors.Is(startErr, errConfig) {
			t.Errorf("%s: started with %v", name, startErr)
		}
	}
}

// What Validate lets through, serf does not refuse for its size.
func TestTagsAtTheLimit(t *testing.T) {
	c := base("a", "1")
	c.listen(t)
	for n := 300; ; n++ {
		c.Version = strings.Repeat("x", n)
		if c.Validate() != nil {
			c.Version = strings.Repeat("x", n-1)
			break
		}
	}
	if len(c.Version) < 400 {
		t.Errorf("only %d bytes of version are left", len(c.Version))
	}
	start(t, c)
}

func TestParseLine(t *testing.T) {
	for line, want := range map[string][2]string{
		"[INFO] serf: EventMemberJoin: a 127.0.0.1\n": {"serf", "EventMemberJoin: a 127.0.0.1"},
		"[WARN] memberlist: was able to connect\n":    {"memberlist", "was able to connect"},
		"[DEBUG] x":        {"", "x"},
		"no level: at all": {"", "no level: at all"},
		"":                 {"", ""},
		"[":                {"", "["},
		"[]":               {"", ""},
	} {
		if component, text := parseLine(line); component != want[0] || text != want[1] {
			t.Errorf("%q: %q, %q", line, component, text)
		}
	}
}

// A name in use is said once a minute, however often peers say it; the rest of what gossip
// says is for debugging.
func TestNameInUseOnce(t *testing.T) {
	var log lines
	w := newAdviser(log.logger())
	for i := range 3 {
		for _, text := range []string{"Conflicting address for gw-", "Failed to send to gw-"} {
			if _, err := w.Write([]byte("[ERR] memberlist: " + text + string(rune('1'+i)) + "\n")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if named, all := log.count("its name is in use"), log.count("level="); named != 1 || all != 1 {
		t.Errorf("%d lines of a name, %d in all", named, all)
	}
}
