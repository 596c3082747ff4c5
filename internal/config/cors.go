package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// CORS lets web pages of other origins read the gateway's own answers on the route (why
// it refuses, Retry-After), and take and use tickets if its pool has them. For its own
// answers the upstream decides.
type CORS struct {
	// Origins are those of the pages, such as https://app.example.com;
	// https://*.example.com, or "*" for every one.
	Origins []string `yaml:"origins"`
	// Credentials lets the pages read answers to requests with cookies.
	Credentials bool `yaml:"credentials"`
	// Preflight makes the gateway answer browsers' preflight requests for all methods and
	// headers: they take no place in line. Browsers keep that answer for 10 minutes.
	Preflight bool `yaml:"preflight"`
}

func (v *validator) cors(key string, c CORS) {
	for i, origin := range c.Origins {
		at := fmt.Sprintf("%s.origins[%d]", key, i)
		const hint = "write scheme, host and perhaps a port, such as https://app.example.com"
		u, err := url.Parse(strings.Replace(origin, "://*.", "://", 1))
		switch {
		case origin == "*":
		case err != nil || u.Scheme == "" || u.Host == "" || strings.ContainsAny(u.Host, "* "):
			v.wrong(at, quote(origin)+" is not an origin", hint)
		case u.Scheme+"://"+u.Host != u.String():
			v.wrong(at, quote(origin)+" is more than an origin", hint)
		case strings.ToLower(u.Host) != u.Host:
			v.wrong(at, quote(origin)+" has capitals, and browsers send none", "write "+quote(strings.ToLower(origin)))
		case u.Scheme == "https" && u.Port() == "443" || u.Scheme == "http" && u.Port() == "80":
			v.wrong(at, quote(origin)+" has the port that browsers leave out", "write "+quote(strings.TrimSuffix(origin, ":"+u.Port())))
		}
	}
	switch {
	case len(c.Origins) == 0 && (c.Credentials || c.Preflight) && !v.src.broken(key+".origins"):
		v.wrong(key, "has no origins", `write origins, such as ["https://app.example.com"]`)
	case c.Credentials && slices.Contains(c.Origins, "*"):
		v.wrong(key+".credentials", "cannot be combined with the origin *: any page could read what is meant for its visitor", "write the origins in place of *")
	}
}
