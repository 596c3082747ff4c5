package config

import (
	"fmt"

	"github.com/kgate/kgate/internal/admission"
)

// An upstream of a pool may have a k of its own: {url: http://10.0.2.1:8000, k: 2}; a name that
// means several servers one for each of them: {url: http://llm.example.com:8000, k_each: 2}. In the
// configuration it stands behind the URL, as in a flag: http://10.0.2.1:8000#k=2.

// sharesK reports whether the pool's upstreams have a k of their own.
func (p Pool) sharesK() bool {
	_, have := admission.SumOfK(p.Upstreams)
	return have > 0
}

// sumK sets the k of pools whose upstreams have their own.
func (c *Config) sumK() {
	for i := range c.Pools {
		if p := &c.Pools[i]; p.sharesK() && p.K == 0 {
			p.K, _ = admission.SumOfK(p.Upstreams)
		}
	}
}

// shares checks a pool whose upstreams have a k of their own.
func (v *validator) shares(key string, p Pool) {
	if !p.sharesK() {
		return
	}
	sum, _ := admission.SumOfK(p.Upstreams)
	if v.src.given(key + ".k") {
		v.wrong(key+".k", "stands beside the k of the upstreams", fmt.Sprintf("remove it: the pool's k is their sum, %d; or remove theirs", sum))
	}
	for i, u := range p.Upstreams {
		at := fmt.Sprintf("%s.upstreams[%d]", key, i)
		switch {
		case u == nil:
		case admission.UpstreamKEach(u) > 0 && u.Scheme == schemeUnix:
			v.wrong(at, "is one server", "write k in place of k_each")
		case admission.UpstreamKEach(u) > 0 && u.Scheme == "https" && !isService(u):
			v.wrong(at, "has servers that are known by address, and a certificate is for a name", "write the name of SRV records, or each server with its k")
		case admission.UpstreamK(u)+admission.UpstreamKEach(u) == 0:
			v.wrong(at, "has no k, and others have", "write {url: "+textOf(admission.UpstreamURL(u))+", k: N}, or one k for the pool and none here")
		case isService(u) && admission.UpstreamK(u) > 0:
			v.wrong(at, quote(u.Host)+" is the name of SRV records, which may be any number of servers", "write k_each in place of k, or each server with its k")
		case (u.Scheme == schemeTCP) != (p.Upstreams[0] != nil && p.Upstreams[0].Scheme == schemeTCP):
			v.wrong(at, "is of another kind than the first one: a slot is for one upstream, and would be for the wrong kind", "write a pool for http and one for tcp")
		}
	}
	if p.Binding == admission.BindingEarly {
		v.wrong(key+".binding", "early ties a request to an upstream that may be down when its turn comes", "remove it, or write one k for the pool and none for its upstreams")
	}
	if len(p.Backup) > 0 {
		v.wrong(key+".backup", "has no meaning where each upstream has a k of its own", "write them under upstreams, or one k for the pool and none for its upstreams")
	}
	if p.Rate.Down > 0 || p.Rate.Up > 0 {
		v.wrong(key+".rate", "cannot be shared by upstreams with a k of their own", "write rate: {per_request: RATE}, or one k for the pool and none for its upstreams")
	}
}
