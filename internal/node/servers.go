package node

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/kmutex"
)

// Where the name of an upstream means several servers of a k of their own, the home of the pool
// looks it up, and proposes the servers that it has now. So one gateway's name server counts.

const (
	// serversEvery is the least time between two proposals for a pool, each of which begins an epoch.
	serversEvery = time.Second
	// goneAfter is how many look-ups in a row must lack a server until it takes no new requests: some
	// name servers answer with a part of a list, or with an old one.
	goneAfter = 3
	// serversTimeout bounds a look-up, or a proposal. The next one follows.
	serversTimeout = 5 * time.Second
)

// named returns the upstreams that are names of several servers.
func (p *Pool) named() []*url.URL {
	return slices.DeleteFunc(slices.Clone(p.Upstreams), func(u *url.URL) bool { return admission.UpstreamKEach(u) == 0 })
}

// servers follows which servers names have.
type servers struct {
	// names is follow's. What it knows of a pool is forgotten while another gateway is its home.
	names map[string]map[string]*nameSeen // by pool and name
	// lookUp is proxy.LookUp, except in tests.
	lookUp func(context.Context, *url.URL) ([]string, error)
}

// nameSeen is what look-ups of a name have told.
type nameSeen struct {
	next   time.Time      // when it is looked up again
	failed bool           // the last one
	lacked map[string]int // how many of the last ones in a row lacked an agreed server
}

// cluster is what servers needs of one.
type cluster interface {
	View() *membership.View
	SetServers(context.Context, membership.SetServers) error
}

// follow looks names up until ctx ends.
func (s *servers) follow(ctx context.Context, p *pools) {
	for {
		s.look(ctx, p.log, p.peers.cluster, kmutex.Node(p.peers.entitled()), *p.configured.Load())
		select {
		case <-time.After(serversEvery):
		case <-ctx.Done():
			return
		}
	}
}

// look looks up the names of pools that are due, as the incarnation self, and proposes what is new.
func (s *servers) look(ctx context.Context, log *slog.Logger, c cluster, self kmutex.Node, pools map[string]Pool) {
	for _, p := range pools {
		// The one that has waited longest comes first: names that change all the time take turns.
		named := slices.SortedStableFunc(slices.Values(p.named()), func(a, b *url.URL) int {
			return s.seen(p.Name, a).next.Compare(s.seen(p.Name, b).next)
		})
		for _, u := range named {
			spec, known := c.View().Pool(p.Name)
			if !known || self == 0 || spec.Home != self || spec.Classes == nil {
				delete(s.names, p.Name)
				break
			}
			seen := s.seen(p.Name, u)
			if time.Now().Before(seen.next) {
				continue
			}
			seen.next = time.Now().Add(max(p.Transport.Resolve, serversEvery))
			if s.propose(ctx, log.With(slog.String("pool", p.Name), slog.String("name", u.Host)), c, spec, u, seen) {
				break // the other names come next
			}
		}
	}
}

func (s *servers) seen(pool string, u *url.URL) *nameSeen {
	if s.names == nil {
		s.names = make(map[string]map[string]*nameSeen)
	}
	if s.names[pool] == nil {
		s.names[pool] = make(map[string]*nameSeen)
	}
	seen := s.names[pool][u.String()]
	if seen == nil {
		seen = new(nameSeen)
		s.names[pool][u.String()] = seen
	}
	return seen
}

// propose looks a name up, proposes its servers if these are others than the agreed ones, and reports
// whether they are.
func (s *servers) propose(ctx context.Context, log *slog.Logger, c cluster, spec membership.Pool, u *url.URL, seen *nameSeen) bool {
	ctx, cancel := context.WithTimeout(ctx, serversTimeout)
	defer cancel()
	found := s.find(ctx, log, u, spec.Classes, &seen.failed)
	if len(found) == 0 {
		return false
	}
	set := membership.SetServers{
		Pool: spec.Name, Epoch: spec.Epoch, Name: admission.UpstreamURL(u), K: admission.UpstreamKEach(u),
	}
	set.Servers = append(found, seen.missed(spec, set.Name, found)...)
	next, changed, err := spec.WithServers(set)
	if changed {
		err = c.SetServers(ctx, set)
	}
	switch {
	case err != nil:
		log.Warn("the servers of a name cannot be agreed on", slog.Any("servers", set.Servers), slog.Any("error", err))
	case changed:
		log.Info("the servers of a name have changed", slog.Any("servers", set.Servers), slog.Int("k", next.K))
	}
	return changed
}

// missed returns the agreed servers of a name that are not found, and may be back soon.
func (n *nameSeen) missed(spec membership.Pool, name string, found []string) (kept []string) {
	lacked := make(map[string]int)
	for _, class := range spec.Classes {
		if class.Name != name || slices.Contains(found, class.Upstream) {
			continue
		}
		if lacked[class.Upstream] = n.lacked[class.Upstream] + 1; lacked[class.Upstream] < goneAfter {
			kept = append(kept, class.Upstream)
		}
	}
	n.lacked = lacked
	return kept
}

// errOtherKind says what to do if it is meant.
var errOtherKind = errors.New("its addresses are of the other kind now, IPv6 or IPv4, and may be those of the same servers; " +
	"if they have moved for good, add them with kgate pool set, and give the old ones k 0")

// find looks up a name of a pool with these classes, and logs when that begins to fail. A server may have
// an address of either kind, and would have its k twice: while the name has one of one kind, those of the
// other do not count. Nor does a server that the pool has under another URL.
func (s *servers) find(ctx context.Context, log *slog.Logger, u *url.URL, classes []membership.Class, failed *bool) []string {
	found, err := s.lookUp(ctx, u)
	if err == nil && len(found) > 0 && slices.ContainsFunc(classes, func(c membership.Class) bool {
		return c.Name == admission.UpstreamURL(u) && (c.K > 0 || len(c.Tokens) > 0) && isIPv6(c.Upstream) != isIPv6(found[0])
	}) {
		found, err = nil, errOtherKind
	}
	if len(found) == 0 && !*failed {
		log.Warn("the servers of a name cannot be looked up: they stay as they were", slog.Any("error", err))
	}
	*failed = len(found) == 0
	return slices.DeleteFunc(found, func(server string) bool {
		return slices.ContainsFunc(classes, func(c membership.Class) bool { return c.Upstream != server && sameServer(c.Upstream, server) })
	})
}

// sameServer reports whether two URLs mean one server.
func sameServer(a, b string) bool {
	one, err := url.Parse(a)
	other, err2 := url.Parse(b)
	return err == nil && err2 == nil && admission.UpstreamServer(one) == admission.UpstreamServer(other)
}

func isIPv6(server string) bool {
	u, err := url.Parse(server)
	return err == nil && strings.Contains(u.Hostname(), ":")
}

// defineNamed proposes a pool with the servers that its names have, unless the cluster has the pool,
// as soon as there is one upstream. It fills in the K and Classes of spec that have been agreed on.
func (p *pools) defineNamed(ctx context.Context, pool *Pool, spec *membership.Pool) error {
	listed, failed := spec.Classes, make([]bool, len(pool.Upstreams))
	for ctx.Err() == nil {
		if agreed, known := p.peers.cluster.View().Pool(pool.Name); known {
			if agreed.Classes != nil {
				spec.K, spec.Classes = agreed.K, agreed.Classes
			}
			return nil
		}
		spec.Classes = slices.Clone(listed)
		for i, u := range pool.named() {
			timed, cancel := context.WithTimeout(ctx, serversTimeout)
			log := p.log.With(slog.String("pool", pool.Name), slog.String("name", u.Host))
			for _, server := range p.servers.find(timed, log, u, spec.Classes, &failed[i]) {
				if !slices.ContainsFunc(spec.Classes, func(have membership.Class) bool { return have.Upstream == server }) {
					spec.Classes = append(spec.Classes, membership.Class{Upstream: server, K: admission.UpstreamKEach(u), Name: admission.UpstreamURL(u)})
				}
			}
			cancel()
		}
		spec.K = 0
		for _, class := range spec.Classes {
			spec.K += class.K
		}
		if spec.K > 0 {
			if err := p.peers.cluster.DefinePool(ctx, *spec); err != nil {
				return err
			}
			continue
		}
		select {
		case <-time.After(serversEvery):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
