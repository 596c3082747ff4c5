package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kgate/kgate/proxy/http1"
)

// CORS says which web pages of other origins may read the answers that the gateway itself
// gives to requests of a route: why it refuses, and when to come back. The upstream
// says what they may read of its answers. If the route's pool has tickets, the pages may
// also use the ticket API for that pool, and read its answers.
type CORS struct {
	// Origins such as https://app.example.com. "https://*.example.com" is every name
	// below example.com, and "*" every origin.
	Origins []string
	// Credentials lets pages read answers to requests with cookies.
	Credentials bool
	// Preflight makes the gateway answer preflight requests. They take no place in line
	// then, and the upstream does not see them. All methods of the route and all headers
	// are allowed, and browsers keep the answer for 10 minutes.
	Preflight bool
}

// preflightAge is how long browsers keep the answer to a preflight request, in seconds.
const preflightAge = "600"

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
		errs = append(errs, errors.New("credentials cannot be allowed for every origin"))
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
func (c *CORS) allow(fields *http1.Fields, r *http1.Request) bool {
	if slices.Contains(c.Origins, "*") {
		fields.Set("Access-Control-Allow-Origin", "*")
		return true
	}
	fields.Add("Vary", "Origin")
	origin := r.Fields.Get("Origin")
	if !c.allows(origin) {
		return false
	}
	fields.Set("Access-Control-Allow-Origin", origin)
	if c.Credentials {
		fields.Set("Access-Control-Allow-Credentials", "true")
	}
	return true
}

// preflight returns the route that a browser's preflight request asks about, if the gateway
// answers it; else nil.
func (rs routes) preflight(r *http1.Request) *route {
	method := preflightMethod(r)
	if method == "" {
		return nil
	}
	if found := rs.find(r, method); found != nil && found.cors.Preflight {
		return found
	}
	return nil
}

// preflightMethod returns the method that a preflight request asks about; empty: r is none.
func preflightMethod(r *http1.Request) string {
	if r.Method != http.MethodOptions || r.Fields.Get("Origin") == "" {
		return ""
	}
	return r.Fields.Get("Access-Control-Request-Method")
}

// ticketCORS returns what the ticket API says to pages: those of all routes to pools with
// tickets may read its answers.
func (rs routes) ticketCORS() (c CORS) {
	for _, r := range rs {
		if r.hasTickets() {
			c.Origins = append(c.Origins, r.cors.Origins...)
		}
	}
	return c
}

// MayUseTickets reports whether the origin of a request that a [Config].TicketHandler
// serves, which is not the gateway's own, is in the CORS of a route to the pool; to any pool
// with tickets, if pool is empty.
func MayUseTickets(ctx context.Context, pool string) bool {
	ex := exchangeIn(ctx)
	return ex != nil && slices.ContainsFunc(ex.snapshot.routes, func(r *route) bool {
		return r.hasTickets() && (pool == "" || pool == r.pool.Name) && r.cors.allows(ex.request.Fields.Get("Origin"))
	})
}
