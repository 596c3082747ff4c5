package admission

import (
	"net/url"
	"strconv"
	"strings"
)

// UpstreamOf returns the URL of the upstream that a slot is for; empty: the pool's upstreams have no
// k of their own, and it is for any.
func UpstreamOf(s Slot) string {
	if of, ok := s.(interface{ Upstream() string }); ok {
		return of.Upstream()
	}
	return ""
}

// UpstreamK returns an upstream's own k, the fragment of its URL, as in http://10.0.2.1:8000#k=2; 0: it
// has none.
func UpstreamK(u *url.URL) int { return numberBehind(u, "k=") }

// UpstreamKEach returns the k of each server of an upstream's name, the fragment of its URL, as in
// http://llm.example.com:8000#k_each=2; 0: it has no k, or is one server.
func UpstreamKEach(u *url.URL) int { return numberBehind(u, "k_each=") }

// numberBehind returns the number in a URL's fragment after what; 0: there is none.
func numberBehind(u *url.URL, what string) int {
	if u == nil {
		return 0
	}
	text, ok := strings.CutPrefix(u.Fragment, what)
	k, err := strconv.Atoi(text)
	if !ok || err != nil || k < 1 {
		return 0
	}
	return k
}

// UpstreamURL returns the URL of an upstream without what stands behind it, its k or its weight.
func UpstreamURL(u *url.URL) string {
	bare := *u
	bare.Fragment, bare.RawFragment = "", ""
	return bare.String()
}

// UpstreamServer returns one text for all URLs that mean the same server and path: without what stands
// behind it, in small letters, with a port and without a last slash.
func UpstreamServer(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if port := map[string]string{"http": ":80", "h2c": ":80", "https": ":443"}[u.Scheme]; u.Port() == "" && host != "" {
		host += port
	}
	return u.Scheme + "://" + host + strings.TrimSuffix(u.EscapedPath(), "/")
}

// SumOfK returns the sum of the upstreams' own k, and how many upstreams have one. A name of several
// servers counts as one upstream.
func SumOfK(upstreams []*url.URL) (k, have int) {
	for _, u := range upstreams {
		if n := UpstreamK(u) + UpstreamKEach(u); n > 0 {
			k += n
			have++
		}
	}
	return k, have
}
