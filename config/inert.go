package config

import "reflect"

// inert are the keys that are read and checked, while the features behind them
// are not built yet.
var inert = []string{
	"listen.https",
	"listen.tls",
	"listen.proxy_protocol",
	"listen.header_timeout",
	"listen.idle_timeout",
	"listen.max_header_bytes",
	"listen.max_connections",
	"pools[].health",
	"pools[].queue.order",
	"pools[].queue.per_client",
	"pools[].hold.min_upload",
	"log.access_format",
	"telemetry.otlp_endpoint",
	"telemetry.sample_ratio",
}

// Inert returns the keys that c sets to something else than their defaults
// although the features behind them are not built yet. A gateway logs them when
// it starts, so that nobody relies on what is not there.
func (c *Config) Inert() []string {
	var keys []string
	for _, s := range c.settings() {
		if pattern := indexes.ReplaceAllString(s.key, "[]"); isInert(pattern) && !reflect.DeepEqual(s.value.Interface(), s.std.Interface()) {
			keys = append(keys, s.key)
		}
	}
	return keys
}

func isInert(pattern string) bool {
	for _, key := range inert {
		if within(pattern, key) {
			return true
		}
	}
	return false
}
