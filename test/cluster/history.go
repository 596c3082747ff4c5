package cluster

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kgate/kgate/kmutex"
)

// Use is one use of a slot, as its client and the upstream saw it. The slot was granted
// after Asked and no later than Began.
type Use struct {
	From, Fence  string // From is the gateway through which a Load has sent the request
	Asked, Began time.Time
	// Ended is when the use was last seen; zero: it has not ended. One that came when its connection
	// was closed already, Ended is Began then, has ended before, nobody knows when.
	Ended time.Time
}

// Change is a k that an operator has set. A larger one counts from Asked on, a smaller
// one from Exact on: that forbids least.
type Change struct {
	K            int
	Asked, Exact time.Time
}

// checking is how long a history is searched for an order.
const checking = 10 * time.Second

// CheckHistory checks the uses of a pool's slots against a counting semaphore whose fences
// grow for each token, and over clusters: there has to be an order of all grants, each within
// its time, that such a semaphore allows. Porcupine looks for it. Epochs order only the uses of
// one token: a gateway that is cut off may go on granting its tokens in its old epoch until its
// lease ends, while others grant theirs in a newer one.
func CheckHistory(tb testing.TB, pool string, k int, uses []Use, changes ...Change) {
	tb.Helper()
	began := time.Now()
	if err := checkHistory(k, uses, changes); err != nil {
		tb.Errorf("%s: %v", pool, err)
		return
	}
	tb.Logf("%s: a semaphore of %d allows all %d uses; searched for %v", pool, k, len(uses), time.Since(began).Round(time.Millisecond))
}

func checkHistory(k int, uses []Use, changes []Change) error {
	uses = slices.SortedFunc(slices.Values(uses), func(a, b Use) int { return a.Began.Compare(b.Began) })
	grants := make([]grant, len(uses))
	for i, u := range uses {
		var err error
		if grants[i], err = parseGrant(u.Fence); err != nil {
			return err
		}
	}
	check := func(n int) porcupine.CheckResult {
		sizes := place(grants[:n])
		return porcupine.CheckOperationsTimeout(semaphore(k, sizes), operations(k, uses[:n], grants, changes), checking)
	}
	result := check(len(uses))
	if result == porcupine.Ok {
		return nil
	}
	// What came before a use that is allowed is allowed.
	first := sort.Search(len(uses)-1, func(i int) bool { return check(i+1) != porcupine.Ok })
	if result = check(first + 1); result == porcupine.Unknown {
		return fmt.Errorf("no order was found within %v", checking)
	}
	bad := uses[first]
	var with []string
	for _, u := range uses[:first] {
		if u.Ended.IsZero() || u.Ended.After(bad.Asked) {
			with = append(with, u.since(bad.Asked))
		}
	}
	return fmt.Errorf("no semaphore of %d allows use %d, %s, beside and after the others; in use since it was asked for, times from then:\n%s",
		k, first+1, bad.since(bad.Asked), strings.Join(with, "\n"))
}

// since says when the use was asked for, began and ended, counted from zero.
func (u Use) since(zero time.Time) string {
	ended := "not ended"
	if !u.Ended.IsZero() {
		ended = u.Ended.Sub(zero).String()
	}
	return fmt.Sprintf("%s: through %s, asked %v, began %v, ended %s", u.Fence, u.From, u.Asked.Sub(zero), u.Began.Sub(zero), ended)
}

// grant is what a fence says, and its place among those of its history.
type grant struct {
	founded, number, serial uint64
	token                   uint64

	cluster, series, place int // counted from 0, without gaps
}

// parseGrant reads pool/founded/epoch/serial.
func parseGrant(fence string) (g grant, err error) {
	parts := strings.Split(fence, "/")
	if len(parts) != 4 {
		return g, fmt.Errorf("%s is %q", FenceHeader, fence)
	}
	for i, to := range []*uint64{&g.founded, &g.number, &g.serial} {
		if *to, err = strconv.ParseUint(parts[i+1], 10, 64); err != nil {
			return g, fmt.Errorf("%s is %q: %w", FenceHeader, fence, err)
		}
	}
	if g.serial == 0 {
		return g, fmt.Errorf("%s %q has no serial", FenceHeader, fence)
	}
	g.token = (g.serial - 1) % kmutex.MaxK
	return g, nil
}

// size of a cluster, from its founding to the next.
type size struct{ grants, tokens int }

// place puts grants in the order of their fences: of the clusters, and of the uses of each token
// in a cluster. Grants with the same fence get the same place.
func place(grants []grant) (clusters []size) {
	order := make([]*grant, len(grants))
	for i := range grants {
		order[i] = &grants[i]
	}
	slices.SortFunc(order, func(a, b *grant) int {
		return cmp.Or(cmp.Compare(a.founded, b.founded), cmp.Compare(a.token, b.token), cmp.Compare(a.number, b.number), cmp.Compare(a.serial, b.serial))
	})
	for i, g := range order {
		var before *grant
		if i > 0 {
			before = order[i-1]
		}
		switch {
		case before == nil || before.founded != g.founded:
			clusters = append(clusters, size{tokens: 1})
			g.series, g.place = 0, 0
		case before.token != g.token:
			clusters[len(clusters)-1].tokens++
			g.series, g.place = before.series+1, 0
		case before.number != g.number || before.serial != g.serial:
			g.series, g.place = before.series, before.place+1
		default:
			g.series, g.place = before.series, before.place
		}
		g.cluster = len(clusters) - 1
		clusters[g.cluster].grants++
	}
	return clusters
}

// step is what happens to the semaphore.
type step struct {
	k       int    // a change of it, if not 0
	grant   *grant // that begins
	release bool   // it ends
}

// slots is the semaphore's state.
type slots struct {
	k, held int
	cluster int
	granted int // in the cluster
	// turns of each token in the cluster: 2n if its use n may begin, one more while that lasts.
	turns []int
}

// semaphore is one of k, with growing fences for each token.
func semaphore(k int, clusters []size) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return slots{k: k, cluster: -1} },
		Step: func(state, input, _ any) (bool, any) {
			s, in := state.(slots), input.(step)
			switch {
			case in.k != 0:
				s.k = in.k
				return true, s
			case in.release:
				return s.give(in.grant)
			default:
				return s.take(in.grant, clusters)
			}
		},
		Equal: func(a, b any) bool {
			x, y := a.(slots), b.(slots)
			return x.k == y.k && x.held == y.held && x.cluster == y.cluster && x.granted == y.granted && slices.Equal(x.turns, y.turns)
		},
	}
}

func (s slots) take(g *grant, clusters []size) (bool, slots) {
	if s.held >= s.k {
		return false, s
	}
	if g.cluster == s.cluster+1 && (s.cluster < 0 || s.granted == clusters[s.cluster].grants) {
		s.cluster, s.granted, s.turns = g.cluster, 0, make([]int, clusters[g.cluster].tokens)
	}
	if g.cluster != s.cluster || s.turns[g.series] != 2*g.place {
		return false, s
	}
	s.held++
	s.granted++
	s.turns = slices.Clone(s.turns)
	s.turns[g.series]++
	return true, s
}

func (s slots) give(g *grant) (bool, slots) {
	if g.cluster == s.cluster {
		if s.turns[g.series] != 2*g.place+1 {
			return false, s
		}
		s.turns = slices.Clone(s.turns)
		s.turns[g.series]++
	}
	s.held--
	return g.cluster <= s.cluster, s
}

// operations returns the history as Porcupine takes it. A release is a point in time, if that is
// known: a later one allows no more.
func operations(k int, uses []Use, grants []grant, changes []Change) (ops []porcupine.Operation) {
	var zero time.Time
	for _, u := range uses {
		if zero.IsZero() || u.Began.Before(zero) {
			zero = u.Began
		}
	}
	add := func(what step, from, to time.Time) {
		call := int64(math.MinInt64)
		if !from.IsZero() {
			call = from.Sub(zero).Nanoseconds()
		}
		ops = append(ops, porcupine.Operation{Input: what, Call: call, Return: to.Sub(zero).Nanoseconds()})
	}
	for _, c := range changes {
		at := c.Asked
		if c.K < k {
			at = c.Exact
		}
		k = c.K
		add(step{k: c.K}, at, at)
	}
	for i, u := range uses {
		add(step{grant: &grants[i]}, u.Asked, u.Began)
		if u.Ended.IsZero() {
			continue
		}
		from := u.Ended
		if from.Equal(u.Began) {
			from = u.Asked
		}
		add(step{grant: &grants[i], release: true}, from, u.Ended)
	}
	return ops
}
