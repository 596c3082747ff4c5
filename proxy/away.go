package proxy

import (
	"log/slog"
	"slices"
	"time"
)

// tell says which agreed upstreams cannot be reached, if they are others than before.
func (b *balancer) tell() {
	b.telling.Lock()
	defer b.telling.Unlock()
	b.mu.Lock()
	bar, pool := b.bar, b.pool
	var away []string
	for _, u := range b.backends {
		if u.isAgreed && !b.reachableLocked(u) {
			away = append(away, u.configured)
		}
	}
	b.mu.Unlock()
	if bar != nil && !slices.Equal(away, b.told) {
		b.told = away
		bar(pool, away)
	}
}

// suspect has an upstream looked at.
func (b *balancer) suspect(upstream string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.backends {
		if u.isAgreed && u.configured == upstream {
			u.suspect()
		}
	}
}

// isBarred reports whether an upstream is known to be out of reach, and that has been told: a slot
// may have been granted just before.
func (b *balancer) isBarred(upstream string) bool {
	b.mu.Lock()
	barred := slices.ContainsFunc(b.backends, func(u *backend) bool {
		return u.isAgreed && u.configured == upstream && !b.reachableLocked(u)
	})
	b.mu.Unlock()
	if barred {
		b.tell()
	}
	return barred
}

// reachableLocked reports whether requests may go to u, as far as is known.
func (b *balancer) reachableLocked(u *backend) bool {
	return !u.away && (!b.policy.checks() || !u.health.bad)
}

// missedLocked notes that u, an agreed upstream, could not be reached, or fails request after
// request: no request goes there before a check, or a connection, has shown that one may.
func (b *balancer) missedLocked(u *backend, cause error) {
	if !u.away {
		u.away = true
		if !u.health.bad { // else it has been said
			b.logHealth(u, false, cause)
		}
		u.changed, u.why = time.Now(), cause
	}
}

// foundLocked notes that u can be reached again.
func (b *balancer) foundLocked(u *backend) {
	if u.away {
		u.away, u.changed = false, time.Now()
		if !u.health.bad {
			b.logHealth(u, true, nil)
		}
	}
}

func (b *balancer) logHealth(u *backend, healthy bool, cause error) {
	attrs := []any{slog.String("pool", b.pool), slog.String("upstream", u.configured)}
	if healthy {
		b.logger.Info("upstream is healthy again", attrs...)
	} else {
		b.logger.Warn("upstream is unhealthy", append(attrs, slog.Any("error", cause))...)
	}
}
