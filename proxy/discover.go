package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// An upstream whose host begins with an underscore, such as http://_http._tcp.example.com,
// names a service: the SRV records of the name (RFC 2782) say which servers it has, on
// which ports, and how to share among them. They are looked up again as addresses are.

const (
	// firstLookUpTimeout bounds how long a configuration waits for its services. Those
	// that are not known by then get no requests until they are.
	firstLookUpTimeout = 2 * time.Second
	// serviceLookUpTimeout bounds later look-ups, for which nothing waits.
	serviceLookUpTimeout = 5 * time.Second
	// serviceRetry is the time between look-ups while nothing is known of a service.
	serviceRetry = time.Second
)

// member is a server as the configuration has it, or the records of a service.
type member struct {
	url    *url.URL
	rank   int // higher ones are used only when no lower one can be
	weight int // its share among those of its rank
}

func isService(u *url.URL) bool { return strings.HasPrefix(u.Host, "_") }

// MayBeMany reports whether the name of an upstream may mean several servers of a k of their own.
// Those of https are known by name, so that their certificates can be checked.
func MayBeMany(u *url.URL) bool {
	return u.Scheme != schemeUnix && (u.Scheme != "https" || isService(u))
}

// LookUp returns the servers that the name of an upstream means now: those of its SRV records, of
// any priority, or one for each address. A server may have an address of either kind, so those of
// IPv6 count if there are certainly no others. While the name server fails nothing is known: else a server
// would be another one, with its own k, by its other address.
func LookUp(ctx context.Context, u *url.URL) ([]string, error) {
	if isService(u) {
		s, err := service{}.lookUp(ctx, u.Host)
		var all []string
		for _, m := range (services{u.Host: s}).members([]*url.URL{{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}}, 0) {
			all = append(all, m.url.String())
		}
		return all, err
	}
	found, err := addresses(ctx, u.Hostname())
	var all []string
	for _, a := range found {
		server := *u
		server.Fragment, server.RawFragment = "", ""
		if server.Host = a.Unmap().WithZone("").String(); u.Port() != "" {
			server.Host = net.JoinHostPort(server.Host, u.Port())
		} else if !a.Unmap().Is4() {
			server.Host = "[" + server.Host + "]"
		}
		all = append(all, server.String())
	}
	slices.Sort(all)
	return all, err
}

// addresses returns those of a host, all of one kind.
func addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	strict := net.Resolver{PreferGo: true, StrictErrors: true, Dial: net.DefaultResolver.Dial}
	found, err := strict.LookupNetIP(ctx, "ip4", host)
	var failed *net.DNSError
	if err == nil || errors.As(err, &failed) && !failed.IsNotFound {
		return found, err
	}
	return strict.LookupNetIP(ctx, "ip6", host)
}

// weightOf returns the weight that stands behind an upstream's URL, as in
// http://10.0.1.1#weight=3; 1 without it.
func weightOf(u *url.URL) (int, error) {
	if u.Fragment == "" {
		return 1, nil
	}
	text, ok := strings.CutPrefix(u.Fragment, "weight=")
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 1 {
		return 0, fmt.Errorf("#%s is not a weight: write #weight=N", u.Fragment)
	}
	return n, nil
}

// services is what is known of the services that a pool names, by name.
type services map[string]service

// service is what is known of one service. The zero value: nothing yet.
type service struct {
	known   bool
	records []*net.SRV // by priority; none if the service is known not to be available
	failing bool       // the last look-up told nothing
}

// members returns the servers of upstreams. Their ranks begin at rank.
func (s services) members(upstreams []*url.URL, rank int) []member {
	var all []member
	for _, u := range upstreams {
		if admission.UpstreamKEach(u) > 0 { // the gateways agree on its servers
			continue
		}
		weight, _ := weightOf(u) // valid; with a k instead the cluster's list counts
		bare := *u
		bare.Fragment, bare.RawFragment = "", ""
		if !isService(u) {
			all = append(all, member{&bare, rank, weight})
			continue
		}
		behind := 0
		records := s[u.Host].records
		for i, r := range records {
			if i > 0 && r.Priority != records[i-1].Priority {
				behind++
			}
			server := bare
			// Letters of both sizes mean the same, and some name servers mix them.
			server.Host = net.JoinHostPort(strings.ToLower(strings.TrimSuffix(r.Target, ".")), strconv.Itoa(int(r.Port)))
			all = append(all, member{&server, rank + behind, weight * max(1, int(r.Weight))})
		}
	}
	return all
}

// serviceNames returns the services among upstreams.
func serviceNames(upstreams []*url.URL) []string {
	var names []string
	for _, u := range upstreams {
		if isService(u) && admission.UpstreamKEach(u) == 0 && !slices.Contains(names, u.Host) {
			names = append(names, u.Host)
		}
	}
	return names
}

// lookUp returns what is known of a service after a look-up. If that fails, or finds no
// records, the servers known before stay: the name server may be at fault, and the servers
// not. The one record that says that there is no service is believed at once.
func (s service) lookUp(ctx context.Context, name string) (service, error) {
	_, records, err := net.DefaultResolver.LookupSRV(ctx, "", "", name)
	isNone := func(r *net.SRV) bool { return r.Target == "." } // RFC 2782: decidedly not available
	none := slices.ContainsFunc(records, isNone)
	records = slices.DeleteFunc(records, isNone)
	if len(records) == 0 && !none {
		return service{known: s.known, records: s.records, failing: true}, err
	}
	slices.SortFunc(records, func(a, b *net.SRV) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), strings.Compare(a.Target, b.Target), cmp.Compare(a.Port, b.Port))
	})
	return service{known: true, records: records}, nil
}
