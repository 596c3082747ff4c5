package fuzz

import (
	"errors"
	"slices"

	"github.com/kgate/kgate/lab/cluster"
	"github.com/kgate/kgate/lab/hosts"
)

// kinds of failures: while shrinking, one must not turn into another.
var kinds = []error{errInvariant, errStarved, errUnsettled, errPanic, cluster.ErrTooMany, hosts.ErrAgreement}

func sameKind(a, b error) bool {
	if a == nil || b == nil {
		return false
	}
	for _, kind := range kinds {
		if errors.Is(a, kind) != errors.Is(b, kind) {
			return false
		}
	}
	return true
}

// Shrink returns the smallest scenario it finds, in at most runs runs, that fails as s does, with fewer
// hosts and fewer operations, and its failure.
func Shrink(s *Scenario, failure error, runs int) (*Scenario, error) {
	h := &shrinker{best: s, failure: failure, runs: runs}
	for n := s.Hosts - 1; n >= 1; n-- {
		if !h.try(h.best.WithHosts(n)) {
			break
		}
	}
	for {
		before := len(h.best.Ops)
		for size := max(before/2, 1); size >= 1; size /= 2 {
			h.without(size)
		}
		if len(h.best.Ops) == before || h.runs <= 0 {
			return h.best, h.failure
		}
	}
}

type shrinker struct {
	best    *Scenario
	failure error
	runs    int
}

// try takes over a scenario if it fails like the best so far.
func (h *shrinker) try(s *Scenario) bool {
	if h.runs <= 0 {
		return false
	}
	h.runs--
	if _, err := Run(s, nil); sameKind(err, h.failure) {
		h.best, h.failure = s, err
		return true
	}
	return false
}

// without leaves out size operations at a time, from the end.
func (h *shrinker) without(size int) {
	for at := len(h.best.Ops) - size; at > -size; at -= size {
		from, to := max(at, 0), at+size
		if to > len(h.best.Ops) {
			continue
		}
		kept := h.best.kept()
		h.try(h.best.Keep(append(slices.Clone(kept[:from]), kept[to:]...)))
	}
}
