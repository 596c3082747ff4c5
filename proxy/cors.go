package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CORS says which web pages of other origins may read the answers that the gateway itself
// gives to requests of a route: why it refuses, and when to come back. The upstream
// says what they may read of its answers.
type CORS struct {
	// Origins such as https://app.example.com. "https://*.example.com" is every name
	// below example.com, and "*" every origin.
	Origins []string
	// Credentials lets pages read answers to requests with cookies.
	Credentials bool
	// Preflight has the gateway answer the questions that browsers ask before such
	// requests. They take no place in line then, and the upstream does not see them. All
	// methods of the route and all headers are allowed.
	Preflight bool
	// MaxAge is for how long browsers may keep these answers; 0: they decide.
	MaxAge time.Duration
}

// corsExposed are the headers of the gateway's own answers.
const corsExposed = "Retry-After, Location, Kgate-Refusal, RateLimit, RateLimit-Policy, Preference-Applied"

// check returns what is wrong with c.
func (c CORS) check() error {
	var errs []error
	for _, origin := range c.Origins {
		u, err := url.Parse(strings.Replace(origin, "://*.", "://", 1))
		if origin != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != u.String() || strings.ContainsAny(u.Host, "* ")) {
			errs = append(errs, fmt.Errorf("%q is not an origin such as https://app.example.com", origin))
		}
	}
	if c.Credentials && slices.Contains(c.Origins, "*") {
		errs = append(errs, errors.New("credentials are not for every origin"))
	}
	if c.MaxAge < 0 {
		errs = append(errs, errors.New("a negative age"))
	}
	return errors.Join(errs...)
}

// allows reports whether pages of the origin may read answers.
func (c *CORS) allows(origin string) bool {
	return slices.ContainsFunc(c.Origins, func(allowed string) bool {
		scheme, suffix, wild := strings.Cut(allowed, "://*.")
		if !wild {
			return allowed == "*" || allowed == origin
		}
		name, ok := strings.CutPrefix(origin, scheme+"://")
		name, below := strings.CutSuffix(name, "."+suffix)
		return ok && below && name != "" && !strings.ContainsAny(name, "/:@")
	})
}

// allow lets the page that has sent the request read the answer with this header.
func (c *CORS) allow(h http.Header, r *http.Request) bool {
	if slices.Contains(c.Origins, "*") {
		h.Set("Access-Control-Allow-Origin", "*")
		return true
	}
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if !c.allows(origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if c.Credentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	return true
}

// exposeRefusal lets a page read an answer of the gateway's own.
func (ex *exchange) exposeRefusal(h http.Header) {
	cors := &ex.route.cors
	if len(cors.Origins) == 0 || !cors.allow(h, ex.request) {
		return
	}
	exposed := corsExposed
	if ex.requestID != "" {
		exposed += ", " + ex.snapshot.requestID
	}
	h.Set("Access-Control-Expose-Headers", exposed)
}

// preflight returns the route of the request that a browser asks about, if the gateway
// answers for it; else nil.
func (rs routes) preflight(r *http.Request) *route {
	if r.Method != http.MethodOptions {
		return nil
	}
	method := r.Header.Get("Access-Control-Request-Method")
	if method == "" || r.Header.Get("Origin") == "" {
		return nil
	}
	if found := rs.find(r, method); found != nil && found.cors.Preflight {
		return found
	}
	return nil
}

// answerPreflight tells a browser what a page may send.
func (ex *exchange) answerPreflight(r *http.Request) {
	h, cors := ex.Header(), &ex.route.cors
	h.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	if cors.allows(r.Header.Get("Origin")) {
		h.Set("Access-Control-Allow-Methods", r.Header.Get("Access-Control-Request-Method"))
		if asked := r.Header["Access-Control-Request-Headers"]; len(asked) > 0 {
			h["Access-Control-Allow-Headers"] = asked
		}
		if cors.MaxAge > 0 {
			h.Set("Access-Control-Max-Age", strconv.Itoa(int(cors.MaxAge.Seconds())))
		}
	}
	ex.WriteHeader(http.StatusNoContent)
}
