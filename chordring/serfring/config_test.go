package serfring

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	if err := base("a", "1").Validate(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no name":    {func(c *Config) { c.Name = "" }, "name is empty"},
		"long name":  {func(c *Config) { c.Name = strings.Repeat("x", 129) }, "at most 128"},
		"no boot":    {func(c *Config) { c.Boot = "" }, "boot id is empty"},
		"short key":  {func(c *Config) { c.Keys = [][]byte{make([]byte, 16)} }, "must have 32 (`kgate keygen` makes one)"},
		"no port":    {func(c *Config) { c.Bind = "10.0.0.1" }, "write host:port, for example :7946"},
		"word port":  {func(c *Config) { c.Bind = ":gossip" }, `"gossip" is not a port number`},
		"big port":   {func(c *Config) { c.Bind = ":99999" }, `"99999" is not a port number`},
		"bad join":   {func(c *Config) { c.Join = []string{"10.0.0.2"} }, `"10.0.0.2" is not host:port`},
		"long tags":  {func(c *Config) { c.Version = strings.Repeat("x", 500) }, "too long together"},
		"everything": {func(c *Config) { *c = Config{Keys: [][]byte{{1}}} }, "boot id is empty"},
	} {
		c := base("a", "1")
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

func TestAdvertise(t *testing.T) {
	for text, want := range map[string]struct {
		ip   string
		port int
	}{
		"":               {"", 0},
		"10.0.0.1":       {"10.0.0.1", 0},
		"10.0.0.1:7000":  {"10.0.0.1", 7000},
		"[fd00::1]:7000": {"fd00::1", 7000},
	} {
		c := Config{Advertise: text}
		ip, port, err := c.advertised(t.Context())
		if err != nil || ip != want.ip || port != want.port {
			t.Errorf("%q: %q, %d, %v", text, ip, port, err)
		}
	}
	c := base("a", "1")
	c.Advertise = "name.invalid:7946"
	if _, err := Start(c); !errors.Is(err, errConfig) || !strings.Contains(err.Error(), "name.invalid") {
		t.Errorf("%v", err)
	}
}

func TestParseLine(t *testing.T) {
	for line, want := range map[string]struct {
		level           slog.Level
		component, text string
	}{
		"[INFO] serf: EventMemberJoin: a 127.0.0.1\n": {slog.LevelDebug, "serf", "EventMemberJoin: a 127.0.0.1"},
		"[WARN] memberlist: was able to connect\n":    {slog.LevelWarn, "memberlist", "was able to connect"},
		"[ERR] memberlist: Failed to send: timeout":   {slog.LevelWarn, "memberlist", "Failed to send: timeout"},
		"[WARN] serf: Shutdown without a Leave\n":     {slog.LevelDebug, "serf", "Shutdown without a Leave"},
		"[DEBUG] x":        {slog.LevelDebug, "", "x"},
		"no level: at all": {slog.LevelInfo, "", "no level: at all"},
		"":                 {slog.LevelInfo, "", ""},
		"[":                {slog.LevelInfo, "", "["},
		"[]":               {slog.LevelDebug, "", ""},
	} {
		level, component, text := parseLine(line)
		if level != want.level || component != want.component || text != want.text {
			t.Errorf("%q: %v, %q, %q", line, level, component, text)
		}
	}
}

// However many causes a peer invents, the memory for them is bounded, and
// each is said once a minute.
func TestOncePerCause(t *testing.T) {
	var log lines
	w := newAdviser(log.logger())
	for i := range 3 {
		if _, err := w.Write([]byte("[ERR] memberlist: Failed to send to 10.0.0." + string(rune('1'+i)) + ":7946\n")); err != nil {
			t.Fatal(err)
		}
	}
	if n := log.count("Failed to send"); n != 1 {
		t.Errorf("said %d times", n)
	}
}
