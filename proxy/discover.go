package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
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
	// serviceRetry is the time between look-ups while there is a service of which nothing
	// is known.
	serviceRetry = time.Second
)

// member is a server as the configuration has it, or the records of a service.
type member struct {
	url    *url.URL
	rank   int // higher ones are used only when no lower one can be
	weight int // its share among those of its rank
}

func isService(u *url.URL) bool { return strings.HasPrefix(u.Host, "_") }

// weightOf returns the weight that stands behind an upstream's URL, as in
// http://10.0.1.1#weight=3; 1 without it.
func weightOf(u *url.URL) (int, error) {
	if u.Fragment == "" {
		return 1, nil
	}
	text, ok := strings.CutPrefix(u.Fragment, "weight=")
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 1 {
		return 0, fmt.Errorf("#%s is no weight: write #weight=N", u.Fragment)
	}
	return n, nil
}

// services are what is known of the services that a pool names: their records, by name.
type services map[string][]*net.SRV

// members returns the servers of upstreams, all of which have a rank or those after it.
func (s services) members(upstreams []*url.URL, rank int) []member {
	var all []member
	for _, u := range upstreams {
		weight, _ := weightOf(u) // valid
		bare := *u
		bare.Fragment, bare.RawFragment = "", ""
		if !isService(u) {
			all = append(all, member{&bare, rank, weight})
			continue
		}
		behind := 0
		for i, r := range s[u.Host] {
			if i > 0 && r.Priority != s[u.Host][i-1].Priority {
				behind++
			}
			server := bare
			server.Host = net.JoinHostPort(strings.TrimSuffix(r.Target, "."), strconv.Itoa(int(r.Port)))
			all = append(all, member{&server, rank + behind, weight * max(1, int(r.Weight))})
		}
	}
	return all
}

// serviceNames returns the services among upstreams.
func serviceNames(upstreams []*url.URL) []string {
	var names []string
	for _, u := range upstreams {
		if isService(u) && !slices.Contains(names, u.Host) {
			names = append(names, u.Host)
		}
	}
	return names
}

// lookUp returns what is known of services after a look-up. Of one for which it fails,
// that is what was known before.
func (s services) lookUp(ctx context.Context, names []string) (services, error) {
	found := make(services)
	var errs []error
	for _, name := range names {
		_, records, err := net.DefaultResolver.LookupSRV(ctx, "", "", name)
		records = slices.DeleteFunc(records, func(r *net.SRV) bool { return r.Target == "." }) // there is none
		switch {
		case len(records) > 0:
			slices.SortFunc(records, func(a, b *net.SRV) int {
				return cmp.Or(cmp.Compare(a.Priority, b.Priority), strings.Compare(a.Target, b.Target), cmp.Compare(a.Port, b.Port))
			})
			found[name] = records
		case s[name] != nil:
			found[name] = s[name]
		}
		if err != nil && len(records) == 0 {
			errs = append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}

// findServices looks up the services of the pool, and reports whether anything about them is new.
// The caller holds b.updating.
func (b *balancer) findServices(ctx context.Context, timeout time.Duration) (changed bool) {
	names := serviceNames(b.wanted.all())
	if len(names) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := b.services.lookUp(ctx, names)
	changed = !reflect.DeepEqual(found, b.services)
	b.services = found
	for _, name := range names {
		if len(found[name]) == 0 {
			b.log.Warn("the servers of an upstream are not known", slog.String("pool", b.wanted.Name), slog.String("service", name), slog.Any("error", err))
		} else if changed {
			b.log.Info("the servers of an upstream", slog.String("pool", b.wanted.Name), slog.String("service", name), slog.Int("servers", len(found[name])))
		}
	}
	return changed
}

// followServices looks the services up again until ctx ends.
func (b *balancer) followServices(ctx context.Context, every time.Duration) {
	for {
		b.updating.Lock()
		wait := every
		if len(b.services) < len(serviceNames(b.wanted.all())) {
			wait = min(every, serviceRetry)
		}
		b.updating.Unlock()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		b.updating.Lock()
		if b.findServices(ctx, serviceLookUpTimeout) && ctx.Err() == nil {
			b.replace()
		}
		b.updating.Unlock()
	}
}
