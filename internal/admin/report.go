package admin

import (
	"maps"
	"slices"
	"strings"
)

// Report is one gateway's report of itself. The gateways exchange reports, and each merges them into
// a status of the fleet.
type Report struct {
	// Status without Fleet.
	Status Status `json:"status"`
	// Past has, by pool, the access windows of the last 15 minutes, [PastStep]
	// apart, the last one now.
	Past map[string][]AccessWindow `json:"past"`
	// Tokens has, by pool, the numbers of the tokens in use there. A token that moved
	// between the answers of two gateways is in both, and counts once.
	Tokens map[string][]int `json:"tokens"`
	// Entries has the requested entries, by pool.
	Entries map[string]Entries `json:"entries,omitempty"`
}

// The length and number of the steps in Report.Past.
const (
	PastStepSeconds = 5
	PastValues      = 15 * 60 / PastStepSeconds
)

// Entries are the requests and tickets of a pool.
type Entries struct {
	// Waiting and Holding, the longest first.
	Waiting []Entry `json:"waiting"`
	Holding []Entry `json:"holding"`
}

// merge makes the status of the fleet from this gateway's present status and the reports of all, by
// name, of one moment. missing are the gateways without a report.
func merge(s Status, all map[string]Report, missing []string) Status {
	s = s.withLists()
	for i := range s.Cluster.Members {
		m := &s.Cluster.Members[i]
		r, ok := all[m.Name]
		if !ok || r.Status.Gateway.Node != m.Node && !m.Self {
			if m.Votes && m.LinkUp && !m.Self {
				s.Cluster.LossesTolerated-- // the voter is silent, which its link does not show yet
			}
			continue
		}
		g := r.Status.Gateway
		lease := g.LeaseSeconds
		m.Answers, m.Ready, m.Reason, m.Version, m.LeaseSeconds, m.Troubles = true, g.Ready, g.Reason, r.Status.Version, &lease, list(g.Troubles)
	}
	s.Cluster.Members = mergeLost(s.Cluster.Members, all)
	for i := range s.Pools {
		s.Pools[i].Fleet = mergePool(s.Pools[i].Name, s.Pools[i].K, all, missing)
	}
	s.Events = mergeEvents(s.Events, all)
	return s
}

// mergeLost adds the lost gateways that others still await: one that has started since has not met them.
func mergeLost(members []Member, all map[string]Report) []Member {
	for _, r := range all {
		for _, m := range r.Status.Cluster.Members {
			known := slices.ContainsFunc(members, func(k Member) bool { return k.Name == m.Name })
			if m.Status == StatusLost && r.Status.Gateway.Ready && !known {
				members = append(members, m)
			}
		}
	}
	slices.SortStableFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return members
}

func mergePool(name string, k int, all map[string]Report, missing []string) PoolFleet {
	f := PoolFleet{Missing: list(missing), Gateways: []PoolPart{}, Upstreams: []Upstream{}}
	var windows []AccessWindow
	tokens := make(map[int]bool)
	var shares []Share
	past := make([][]AccessWindow, 0, len(all))
	for _, gateway := range slices.Sorted(maps.Keys(all)) {
		r := all[gateway]
		p, err := r.Status.pool(name)
		if err != nil {
			continue
		}
		part := PoolPart{
			Name: r.Status.Gateway.Name, InFlight: p.InFlight, Waiting: p.Waiting, OldestSeconds: p.OldestSeconds,
			FreeTokens: p.FreeTokensHere, Baton: p.BatonHere, AccessWindow: p.AccessWindow, Client: p.Client,
		}
		f.Gateways = append(f.Gateways, part)
		f.InFlight += max(0, part.InFlight-len(r.Tokens[name])) // tokens that have no number yet
		for _, t := range r.Tokens[name] {
			tokens[t] = true
		}
		f.Waiting += part.Waiting
		f.FreeTokens += part.FreeTokens
		f.OldestSeconds = max(f.OldestSeconds, part.OldestSeconds)
		f.TicketsHolding += p.TicketsHolding
		f.OldestHoldSeconds = max(f.OldestHoldSeconds, p.OldestHoldSeconds)
		f.Upstreams = mergeUpstreams(f.Upstreams, part.Name, p.Upstreams)
		f.Recent.add(p.Recent)
		shares = append(shares, p.Shares...)
		if part.Baton { // on its way it may be in two answers: one is enough
			f.Baton = part.Name
		}
		windows, past = append(windows, part.AccessWindow), append(past, r.Past[name])
	}
	f.InFlight += len(tokens)
	for i := range f.Gateways {
		f.Gateways[i].Baton = f.Gateways[i].Name == f.Baton
	}
	f.Client, f.Shares = largest(f.Gateways), mergeShares(shares)
	f.AccessWindow = sum(windows)
	f.SpreadMillis = f.AccessWindow.spread(k)
	f.Past = Past{StepSeconds: PastStepSeconds, SpreadMillis: pastSpread(past, k)}
	return f
}

// sum merges the access times of several gateways.
func sum(windows []AccessWindow) AccessWindow {
	var all AccessWindow
	total := 0.0
	for _, w := range windows {
		total += w.MeanMillis * float64(w.Count)
		all.MaxMillis = max(all.MaxMillis, w.MaxMillis)
		all.OldestMillis = max(all.OldestMillis, w.OldestMillis)
		all.Count += w.Count
	}
	if all.Count > 0 {
		all.MeanMillis = total / float64(all.Count)
	}
	return all
}

// spread returns the longest wait, of admitted or still waiting requests, minus the mean wait of the
// admitted ones. With at most k admissions there is too little to compare, and the mean counts as 0:
// otherwise a line that has nearly stopped would look fair.
func (w AccessWindow) spread(k int) float64 {
	longest := max(w.MaxMillis, w.OldestMillis)
	if w.Count <= uint64(max(k, 0)) {
		return longest
	}
	return max(0, longest-w.MeanMillis)
}

// pastSpread merges the pasts of several gateways. They end at the same moment, but
// need not be equally long.
func pastSpread(past [][]AccessWindow, k int) []*float64 {
	out := make([]*float64, PastValues)
	for i := range out {
		var windows []AccessWindow
		for _, p := range past {
			if j := len(p) - PastValues + i; j >= 0 && j < len(p) {
				windows = append(windows, p[j])
			}
		}
		if w := sum(windows); w.Count > 0 || w.OldestMillis > 0 {
			v := w.spread(k)
			out[i] = &v
		}
	}
	return out
}

// Source provides this gateway's report. Its methods must be safe for concurrent use and return
// quickly.
type Source interface {
	// Report returns the report of this gateway, with at most entries waiting entries of pool,
	// and as many that hold a slot; of each pool if pool is empty.
	Report(pool string, entries int) Report
	// Ready reports whether this gateway admits requests, and if not, why, in plain words.
	Ready() (ready bool, reason string)
}
