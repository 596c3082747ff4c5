package gateway

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy"
)

// withDefaults fills in what c leaves out.
func (c Config) withDefaults() Config {
	if len(c.Routes) == 0 && len(c.Pools) == 1 && c.Pools[0].servesRequests() {
		c.Routes = []proxy.Route{{Pool: c.Pools[0].Name}}
	}
	c.Pools = slices.Clone(c.Pools)
	for i := range c.Pools {
		if p := &c.Pools[i]; p.K == 0 {
			p.K, _ = admission.SumOfK(p.Upstreams)
		}
	}
	return c
}

// check returns what is wrong with c and that package kgate cannot tell.
func (c *Config) check() error {
	var errs []error
	bad := func(field, problem string) { errs = append(errs, &kgate.ConfigError{Field: field, Problem: problem}) }
	if len(c.Config.Pools) > 0 {
		bad("Config.Pools", "set Pools of the gateway's own Config")
	}
	for i := range c.Pools {
		p := &c.Pools[i]
		for field, bound := range map[string]int64{
			"RateDown": p.RateDown, "RateUp": p.RateUp, "RequestRate": p.RequestRate,
			"HoldIdle": int64(p.HoldIdle), "MinUpload": int64(p.MinUpload), "MinDownload": int64(p.MinDownload),
		} {
			if bound < 0 {
				bad(fmt.Sprintf("Pools[%d].%s", i, field), "it is negative: set a bound, or 0 for none")
			}
		}
		if why := p.misshared(); why != "" {
			bad(fmt.Sprintf("Pools[%d].Upstreams", i), "they have a k of their own (#k=N), and "+why)
		}
	}
	return errors.Join(errs...)
}

// misshared says why upstreams of the pool cannot have a k of their own; "" if they can, or none
// has one.
func (p *Pool) misshared() string {
	sum, have := admission.SumOfK(p.Upstreams)
	if have == 0 {
		return ""
	}
	isTCP := func(u *url.URL) bool { return u.Scheme == "tcp" }
	switch {
	case have < len(p.Upstreams):
		return "others without: set it for all, or K and none"
	case p.K != sum:
		return fmt.Sprintf("K %d: leave K out, it is their sum, %d", p.K, sum)
	case p.EarlyBinding:
		return "EarlyBinding, which ties requests to an upstream that may be down when their turn comes: leave it out"
	case len(p.Backup) > 0:
		return "Backup, which none can stand in for: leave it out"
	case p.RateDown > 0 || p.RateUp > 0:
		return "a rate for all together: leave out RateDown and RateUp"
	case slices.ContainsFunc(p.Upstreams, func(u *url.URL) bool { return isTCP(u) != isTCP(p.Upstreams[0]) }):
		return "some for TCP connections, others for requests: make it two pools"
	case slices.ContainsFunc(p.Upstreams, func(u *url.URL) bool { return strings.HasPrefix(u.Host, "_") && admission.UpstreamK(u) > 0 }):
		return "one is the name of SRV records: set k_each, or each server"
	case slices.ContainsFunc(p.Upstreams, func(u *url.URL) bool { return admission.UpstreamKEach(u) > 0 && !proxy.MayBeMany(u) }):
		return "k_each stands behind one server, or one whose certificate is for its name: set k, or the name of SRV records"
	default:
		return ""
	}
}

// servesRequests reports whether the pool has an upstream that serves HTTP requests.
func (p *Pool) servesRequests() bool {
	return slices.ContainsFunc(p.Upstreams, func(u *url.URL) bool { return u == nil || u.Scheme != "tcp" })
}
