package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// Share is what a client has of a pool in the order fair, at one gateway or, in Fleet, at all.
type Share struct {
	// Client is its address, or # and the first digits of the SHA-256 of its name, which may be a
	// secret.
	Client string  `json:"client"`
	Weight float64 `json:"weight"`
	// Slots is the mean number of slots that it has had in about the last half minute.
	Slots float64 `json:"slots"`
	// InUse and Waiting count its requests.
	InUse   int `json:"in_use"`
	Waiting int `json:"waiting"`
	// Wait sums up the waits of its requests that were admitted in that time. The oldest of those
	// that wait has waited for OldestSeconds.
	Wait          Times   `json:"wait"`
	OldestSeconds float64 `json:"oldest_seconds"`
}

// sharesShown is how many clients the fleet's status has.
const sharesShown = 10

// mergeShares returns the clients that have had most, from each gateway's.
func mergeShares(all []Share) []Share {
	slices.SortFunc(all, func(a, b Share) int { return cmp.Compare(a.Client, b.Client) })
	var out []Share
	for _, s := range all {
		if len(out) == 0 || out[len(out)-1].Client != s.Client {
			out = append(out, s)
			continue
		}
		o := &out[len(out)-1]
		o.Slots, o.InUse, o.Waiting = o.Slots+s.Slots, o.InUse+s.InUse, o.Waiting+s.Waiting
		o.Wait.add(s.Wait)
		o.OldestSeconds = max(o.OldestSeconds, s.OldestSeconds)
	}
	slices.SortStableFunc(out, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Slots, a.Slots), cmp.Compare(b.OldestSeconds, a.OldestSeconds))
	})
	return out[:min(sharesShown, len(out))]
}

// Of says which part of a pool's k slots a client has had, and its weight if that is not 1.
func (s Share) Of(k int) string {
	text := fmt.Sprintf("%.0f %%", 100*s.Slots/float64(max(1, k)))
	if s.Weight != 1 {
		text += ", weight " + strconv.FormatFloat(s.Weight, 'g', -1, 64)
	}
	return text
}

// MeanWait describes the mean wait; empty: nobody was admitted.
func (s Share) MeanWait() string {
	if s.Wait.Count == 0 {
		return ""
	}
	return Millis(s.Wait.MeanMillis)
}

// Oldest describes the wait of the oldest that waits; empty: nobody waits.
func (s Share) Oldest() string {
	if s.Waiting == 0 {
		return ""
	}
	return Seconds(s.OldestSeconds)
}
