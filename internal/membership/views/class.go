package views

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// Class is those of a pool's tokens that stand for places at one upstream.
type Class struct {
	// Upstream is its URL.
	Upstream string `json:"upstream"`
	// K is how many requests it may get at once; 0: no new ones.
	K int `json:"k"`
	// Tokens are the numbers of the class: as many as its largest k so far. It has a number
	// until nobody can hold that.
	Tokens kmutex.TokenSet `json:"tokens,omitempty"`
	// Name is the upstream's name in the configuration, where it may mean several servers and has
	// this one now. Empty: the upstream was listed itself, or its name has it no more.
	Name string `json:"name,omitempty"`
}

// isRetired reports whether the count is to find out if requests of the class are left.
func (c Class) isRetired() bool { return c.K == 0 && (c.Name == "" || len(c.Tokens) > 0) }

// withK returns the classes with another k of one of them, which may be new, and their k
// together. The argument does not change.
func withK(classes []Class, upstream string, k int) (all []Class, total int, err error) {
	all = slices.Clone(classes)
	i := slices.IndexFunc(all, func(c Class) bool { return c.Upstream == upstream })
	if i < 0 {
		i, all = len(all), append(all, Class{Upstream: upstream})
	}
	var taken kmutex.TokenSet
	for _, c := range all {
		taken.AddAll(c.Tokens)
	}
	c := &all[i]
	c.K, c.Tokens = k, c.Tokens.Clone()
	for q := kmutex.Token(0); c.Tokens.Len() < k; q++ {
		if q == kmutex.MaxK {
			return nil, 0, fmt.Errorf("%w: the numbers of the pool's %d tokens are all taken; those of an upstream that is at k 0 come back when its last request has ended", ErrCommand, kmutex.MaxK)
		}
		if !taken.Has(q) {
			c.Tokens.Add(q)
		}
	}
	for _, c := range all {
		total += c.K
	}
	return all, total, nil
}

// UpstreamK returns the k of an upstream, and whether the pool has it.
func (p Pool) UpstreamK(upstream string) (k int, known bool) {
	i := slices.IndexFunc(p.Classes, func(c Class) bool { return c.Upstream == upstream })
	if i < 0 {
		return 0, false
	}
	return p.Classes[i].K, true
}

// Upstream returns the upstream that a token stands for; "" if the pool's tokens are all alike.
func (p Pool) Upstream(q kmutex.Token) string {
	for _, c := range p.Classes {
		if c.Tokens.Has(q) {
			return c.Upstream
		}
	}
	return ""
}

// retiring reports whether an upstream takes no new requests, and is still known because it
// may have some.
func (p Pool) retiring() bool {
	return slices.ContainsFunc(p.Classes, Class.isRetired)
}

// CheckK returns an error unless the pool may have k tokens; with upstream, k for that one.
func (p Pool) CheckK(upstream string, k int) error {
	switch {
	case p.Classes == nil && upstream == "":
		return CheckK(k)
	case p.Classes == nil:
		return fmt.Errorf("%w: the upstreams of pool %q have no k of their own: set that of the pool", ErrCommand, p.Name)
	case upstream == "":
		return fmt.Errorf("%w: each upstream of pool %q has a k of its own: say of which one k is", ErrCommand, p.Name)
	case k < 0 || k > kmutex.MaxK:
		return fmt.Errorf("%w: k of an upstream is %d, it must be between 0 and %d", ErrCommand, k, kmutex.MaxK)
	}
	if err := checkText("the upstream's URL", upstream); err != nil {
		return err
	}
	all, total, err := withK(p.Classes, upstream, k)
	if err != nil {
		return err
	}
	return p.checkTotal(all, total)
}

// checkTotal returns an error unless the pool may have these classes, of so many tokens.
func (p Pool) checkTotal(all []Class, total int) error {
	switch {
	case len(all) > maxClasses:
		return errTooMany
	case total == 0:
		return fmt.Errorf("%w: no upstream of pool %q would take requests", ErrCommand, p.Name)
	default:
		return CheckK(total)
	}
}

// WithServers returns the pool with the servers that a name has now, and whether they are others
// than before. New ones get c.K; those that are gone take no new requests. One whose k was set
// keeps it, and so does one that was listed without a name.
func (p Pool) WithServers(c SetServers) (Pool, bool, error) {
	if p.Classes == nil {
		return p, false, p.CheckK("x", 1)
	}
	err := errors.Join(checkText("the upstream's URL", c.Name), CheckK(c.K))
	all, total, changed := slices.Clone(p.Classes), p.K, false
	for _, server := range c.Servers {
		i := slices.IndexFunc(all, func(have Class) bool { return have.Upstream == server })
		if i >= 0 && (all[i].K > 0 || all[i].Name != "") || err != nil {
			continue
		}
		if err = checkText("the upstream's URL", server); err == nil {
			all, total, err = withK(all, server, c.K)
			changed = true
		}
		if at := slices.IndexFunc(all, func(have Class) bool { return have.Upstream == server }); at >= 0 {
			all[at].Name = c.Name
		}
	}
	for i := range all {
		if class := &all[i]; class.Name == c.Name && !slices.Contains(c.Servers, class.Upstream) {
			total, changed = total-class.K, true
			class.K, class.Name = 0, ""
		}
	}
	if err == nil && changed {
		err = p.checkTotal(all, total)
	}
	if err != nil || !changed {
		return p, false, err
	}
	p.Classes, p.K = all, total
	return p, true, nil
}

// setServers takes over which servers a name has.
func (s *state) setServers(index uint64, c SetServers) (bool, error) {
	at, err := s.pool(c.Pool)
	if err != nil || s.Pools[at].Epoch != c.Epoch {
		return false, err
	}
	p, changed, err := s.Pools[at].WithServers(c)
	if err != nil || !changed {
		return false, err
	}
	s.Pools[at] = p
	s.beginEpochs(index, pools{at: true})
	return true, nil
}

// setUpstreamK changes the k of one of the pool's upstreams, which may be new.
func (s *state) setUpstreamK(index uint64, at int, c SetK) (bool, error) {
	p := &s.Pools[at]
	have, known := p.UpstreamK(c.Upstream)
	if have == c.K && (known || c.K == 0) {
		return false, nil
	}
	if c.Was != 0 && have != c.Was {
		return false, fmt.Errorf("%w: k of upstream %s is %d, not %d", ErrConflict, c.Upstream, have, c.Was)
	}
	p.Classes, p.K, _ = withK(p.Classes, c.Upstream, c.K)
	s.beginEpochs(index, pools{at: true})
	return true, nil
}

// forgetRetired takes out the upstreams that take no new requests: they have none any more. One
// whose name still has it stays, without numbers: else it would come back with its name's k.
func (p *Pool) forgetRetired() {
	if p.Classes == nil {
		return
	}
	p.Classes = slices.DeleteFunc(slices.Clone(p.Classes), func(c Class) bool { return c.K == 0 && c.Name == "" })
	for i := range p.Classes {
		if c := &p.Classes[i]; c.K == 0 {
			c.Tokens = nil
		}
	}
}
