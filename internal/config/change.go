package config

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// Effect says when a change of a key in the file takes effect.
type Effect string

// The effects.
const (
	// EffectReload: when it reads the file again, on SIGHUP.
	EffectReload Effect = "reload"
	// EffectRestart: when it is started again.
	EffectRestart Effect = "restart"
	// EffectNewPool: only when the pool is new in the cluster; afterwards the value that
	// the gateways have agreed on counts.
	EffectNewPool Effect = "new pool"
)

// effects of keys, and of those below them; the first that fits counts. Keys that
// are not here follow a reload.
var effects = []struct {
	key    string
	effect Effect
}{
	{"node", EffectRestart},
	{"listen.tls", EffectReload},
	{"listen.https_only", EffectReload},
	{"listen.https_port", EffectReload},
	{"listen.hsts", EffectReload},
	{"listen.allow", EffectReload},
	{"listen.deny", EffectReload},
	{"listen.waiting_header_bytes", EffectReload},
	{"listen", EffectRestart},
	{"cluster", EffectRestart},
	{"drain.waiting", EffectRestart},
	{"pools[].name", EffectRestart},
	{"pools[].k", EffectNewPool},
	{"pools[].binding", EffectNewPool},
	{"pools[].rate.down", EffectNewPool},
	{"pools[].rate.up", EffectNewPool},
	{"pools[].reclaim", EffectNewPool},
	{"telemetry.otlp_endpoint", EffectRestart},
}

func effectOf(key string) Effect {
	pattern := indexes.ReplaceAllString(key, "[]")
	for _, e := range effects {
		if within(pattern, e.key) {
			return e.effect
		}
	}
	return EffectReload
}

// Change is one key whose value has changed.
type Change struct {
	// Key is its path, pools by name: pools[downloads].queue.timeout.
	Key string
	// Old and New are its values; "none" for what is not there. Secrets are not
	// shown.
	Old, New string
	// Effect says when the change takes effect.
	Effect Effect
}

// Reload returns the configuration that a gateway with c has after it has reloaded a file
// with next: next, except for the keys that need a restart. It also returns all that
// differs, in the order of the file.
func (c *Config) Reload(next *Config) (*Config, []Change) {
	changes := c.changes(next)
	own := *next // shares its pools with next, and does not change them
	next = &own
	next.Listen.TCP = slices.Clone(c.Listen.TCP) // whole, since walk compares entries with defaults
	walk("", reflect.ValueOf(next).Elem(), reflect.ValueOf(c).Elem(), func(s setting) {
		if effectOf(s.key) == EffectRestart && !strings.HasPrefix(s.key, keyPools) && !strings.HasPrefix(s.key, keyTCP) {
			s.value.Set(s.std)
		}
	})
	return next, changes
}

func (c *Config) changes(next *Config) []Change {
	var all []Change
	note := func(key, before, after string, effect Effect) {
		if before != after {
			all = append(all, Change{Key: key, Old: before, New: after, Effect: effect})
		}
	}
	walk("", reflect.ValueOf(next).Elem(), reflect.ValueOf(c).Elem(), func(s setting) {
		if !slices.ContainsFunc(comparedWhole, func(list string) bool { return within(s.key, list) }) {
			before, after := show(s.std), show(s.value)
			if before == after && before != "[]" && !reflect.DeepEqual(s.std.Interface(), s.value.Interface()) {
				after = "another " + after // a secret
			}
			note(s.key, before, after, effectOf(s.key))
		}
	})
	for _, p := range next.Pools {
		key := keyPools + "[" + p.Name + "]"
		was, ok := c.pool(p.Name)
		if !ok {
			note(key, nothing, summary(p, DefaultPool()), EffectReload)
			continue
		}
		walk(keyPools+"[]", reflect.ValueOf(p), reflect.ValueOf(was), func(s setting) {
			effect := effectOf(s.key)
			if before, after := upstreamsIn(s.std), upstreamsIn(s.value); after != nil && slices.Equal(before, after) {
				effect = EffectNewPool // they differ in k
			}
			note(key+strings.TrimPrefix(s.key, keyPools+"[]"), show(s.std), show(s.value), effect)
		})
	}
	for _, p := range c.Pools {
		if _, ok := next.pool(p.Name); !ok {
			note(keyPools+"["+p.Name+"]", summary(p, DefaultPool()), nothing, EffectReload)
		}
	}
	all = append(all, listChanges(keyCertificates, summaries(c.Listen.TLS.Certificates), summaries(next.Listen.TLS.Certificates))...)
	all = append(all, listChanges(keyTCP, summaries(c.Listen.TCP), summaries(next.Listen.TCP))...)
	all = append(all, listChanges(keyErrorPages, summaries(c.ErrorPages), summaries(next.ErrorPages))...)
	return append(all, listChanges(keyRoutes, summaries(c.Routes), summaries(next.Routes))...)
}

// upstreamsIn returns the upstreams in a value of the configuration, without their k; nil: it has none.
func upstreamsIn(v reflect.Value) []string {
	all, _ := v.Interface().([]*url.URL)
	out := make([]string, 0, len(all))
	for _, u := range all {
		if bare := *u; isK(u.Fragment) {
			bare.Fragment = ""
			u = &bare
		}
		out = append(out, u.String())
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// comparedWhole are the lists of groups: their entries are compared with each other, not
// with the defaults.
var comparedWhole = []string{keyPools, keyRoutes, keyTCP, keyCertificates, keyErrorPages}

const nothing = "none"

// listChanges compares lists whose entries have no name. Their common prefix and suffix
// count as unchanged, and what is between them as changed.
func listChanges(key string, old, now []string) []Change {
	from := 0
	for from < min(len(old), len(now)) && old[from] == now[from] {
		from++
	}
	for len(old) > from && len(now) > from && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	var all []Change
	for i := from; i < max(len(old), len(now)); i++ {
		change := Change{Key: fmt.Sprintf("%s[%d]", key, i), Old: nothing, New: nothing, Effect: effectOf(key)}
		if i < len(old) {
			change.Old = old[i]
		}
		if i < len(now) {
			change.New = now[i]
		}
		if change.Old != change.New {
			all = append(all, change)
		}
	}
	return all
}

func summaries[T any](entries []T) []string {
	all := make([]string, len(entries))
	for i, e := range entries {
		all[i] = summary(e, *new(T))
	}
	return all
}

// summary writes the values of v that are not the default.
func summary(v, std any) string {
	var said []string
	walk("", reflect.ValueOf(v), reflect.ValueOf(std), func(s setting) {
		if now := show(s.value); now != show(s.std) {
			said = append(said, s.key+": "+now)
		}
	})
	return "{" + strings.Join(said, ", ") + "}"
}
