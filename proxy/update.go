package proxy

import (
	"context"
	"log/slog"
	"net/url"
	"reflect"
	"slices"
	"time"
)

// update has later requests use the upstreams of p. Upstreams that b has already, with
// the same transport, keep their connections and their health. A p without a name belongs
// to a route without a pool, which needs no lease.
func (b *balancer) update(p Pool, standing func() uint64, bar func(string, []string), logger *slog.Logger) {
	if p.Name == "" {
		standing = nil
	}
	b.stopFollowing()
	b.updating.Lock()
	defer b.updating.Unlock()
	b.wanted, b.standing, b.log = p, standing, logger
	b.mu.Lock()
	b.bar = bar
	b.mu.Unlock()
	b.findServices(context.Background(), firstLookUpTimeout)
	b.replace()
	if len(serviceNames(p.all())) > 0 && p.Transport.Resolve > 0 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); b.followServices(ctx, p.Transport.Resolve) }()
		b.follow = func() { cancel(); <-done }
	}
}

// stopFollowing ends followServices.
func (b *balancer) stopFollowing() {
	b.updating.Lock()
	stop := b.follow
	b.follow = nil
	b.updating.Unlock()
	if stop != nil {
		stop()
	}
}

// replace makes the backends those of the wanted pool. The caller holds updating.
func (b *balancer) replace() {
	p := b.wanted
	const backups = 1 << 20 // their rank, behind those of all records
	all := append(b.services.members(p.Upstreams, 0), b.services.members(p.Backup, backups)...)
	if len(b.agreed) > 0 {
		all = b.agreedMembers()
	}
	b.mu.Lock()
	before := b.backends
	after := make([]*backend, 0, len(all))
	for _, m := range all {
		same := func(u *backend) bool { return u.configured == m.url.String() && u.transport == p.Transport }
		if slices.ContainsFunc(after, same) { // two services may name one server
			continue
		}
		var u *backend
		if i := slices.IndexFunc(before, same); i >= 0 {
			u = before[i]
		} else if u = newBackend(m.url, p.Transport, b.standing); len(before) > 0 {
			u.since = time.Now()
		}
		u.rank, u.weight, u.isAgreed = m.rank, m.weight, len(b.agreed) > 0
		after = append(after, u)
	}
	b.backends, b.next, b.pool, b.policy, b.logger = after, 0, p.Name, p.Health, b.log
	b.mu.Unlock()
	for _, u := range before {
		u.endChecks()
		if !slices.Contains(after, u) {
			u.client.CloseIdle()
		}
	}
	for _, u := range after {
		b.startChecks(u, p.Health)
	}
	b.tell()
}

// findServices looks up the services of the pool, and reports whether any has other servers
// than before. The caller holds b.updating.
func (b *balancer) findServices(ctx context.Context, timeout time.Duration) (changed bool) {
	found := make(services)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, name := range serviceNames(b.wanted.all()) {
		before := b.services[name]
		s, err := before.lookUp(ctx, name)
		found[name] = s
		attrs := []any{slog.String("pool", b.wanted.Name), slog.String("service", name)}
		isNew := s.known != before.known || !reflect.DeepEqual(s.records, before.records)
		changed = changed || isNew
		switch {
		case s.failing && !before.failing && s.known:
			b.log.Warn("SRV records cannot be looked up: the servers stay as they were", append(attrs, slog.Int("servers", len(s.records)), slog.Any("error", err))...)
		case s.failing && !before.failing:
			b.log.Warn("SRV records cannot be looked up: nothing is sent to this service until they can", append(attrs, slog.Any("error", err))...)
		case isNew && len(s.records) == 0:
			b.log.Warn("the SRV record says that the service is not available: nothing is sent to it", attrs...)
		case isNew || before.failing && !s.failing:
			b.log.Info("SRV records were looked up", append(attrs, slog.Int("servers", len(s.records)))...)
		}
	}
	b.services = found
	return changed
}

// followServices looks the services up again until ctx ends.
func (b *balancer) followServices(ctx context.Context, every time.Duration) {
	for {
		b.updating.Lock()
		wait := every
		for _, s := range b.services {
			if !s.known {
				wait = min(every, serviceRetry)
			}
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

// close ends the checks and closes the connections that no request uses.
func (b *balancer) close() {
	b.stopFollowing()
	b.mu.Lock()
	backends := b.backends
	b.mu.Unlock()
	for _, u := range backends {
		u.endChecks()
		u.client.CloseIdle()
	}
}

// agree has the balancer's upstreams be these, if there are any.
func (b *balancer) agree(upstreams []string) {
	b.updating.Lock()
	defer b.updating.Unlock()
	if slices.Equal(upstreams, b.agreed) {
		return
	}
	b.agreed = upstreams
	b.replace()
}

// agreedMembers returns the agreed upstreams. The caller holds updating.
func (b *balancer) agreedMembers() []member {
	var all []member
	for _, text := range b.agreed {
		u, err := url.Parse(text)
		if err != nil { // the gateway that proposed it could read it
			b.log.Error("an upstream that the cluster has agreed on cannot be read", slog.String("pool", b.wanted.Name), slog.Any("error", err))
			continue
		}
		all = append(all, member{u, 0, 1})
	}
	return all
}

// take is pick for a slot that is for this upstream. The cluster may have agreed on it just now.
func (b *balancer) take(upstream string) *backend {
	if u := b.find(upstream); u != nil {
		return u
	}
	b.updating.Lock()
	defer b.updating.Unlock()
	if !slices.Contains(b.agreed, upstream) {
		b.agreed = append(slices.Clone(b.agreed), upstream)
		b.replace()
	}
	return b.find(upstream)
}

func (b *balancer) find(upstream string) *backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.backends, func(u *backend) bool { return u.configured == upstream })
	if i < 0 {
		return nil
	}
	b.countLocked(b.backends[i])
	return b.backends[i]
}
