package config

import "fmt"

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
	d, dp := Default(), DefaultPool()
	note("node.admin_token_file", c.Node.AdminTokenFile != "")
	note("cluster.lease", c.src.given("cluster.lease") || c.Cluster.Lease != d.Cluster.Lease)
	note("cluster.replicas", c.src.given("cluster.replicas") || c.Cluster.Replicas != d.Cluster.Replicas)
	for i, p := range c.Pools {
		key := fmt.Sprintf("%s[%d]", keyPools, i)
		note(key+".hold.max", c.src.given(key+".hold.max") || p.Hold.Max != dp.Hold.Max)
		note(key+".hold.idle", c.src.given(key+".hold.idle") || p.Hold.Idle != dp.Hold.Idle)
		note(key+".reclaim", p.Reclaim == ReclaimHold)
		note(key+".tickets", p.Tickets)
	}
	note("telemetry.otlp_endpoint", c.Telemetry.OTLPEndpoint != "")
	note("telemetry.sample_ratio", c.src.given("telemetry.sample_ratio") || c.Telemetry.SampleRatio != d.Telemetry.SampleRatio)
	return keys
}
