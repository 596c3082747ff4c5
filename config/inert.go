package config

// Inert returns the keys that c sets although the features behind them are
// not built yet, in the order of the file. A gateway logs them when it starts,
// so that nobody relies on what is not there.
func (c *Config) Inert() []string {
	var keys []string
	note := func(key string, set bool) {
		if set {
			keys = append(keys, key)
		}
	}
	d := Default()
	note("telemetry.otlp_endpoint", c.Telemetry.OTLPEndpoint != "")
	note("telemetry.sample_ratio", c.src.given("telemetry.sample_ratio") || c.Telemetry.SampleRatio != d.Telemetry.SampleRatio)
	return keys
}
