package gateway

import (
	"slices"

	"github.com/kgate/kgate/internal/membership"
)

// reasonOf returns why a pool entered an epoch.
func reasonOf(before, after membership.Pool, left bool) Reason {
	switch {
	case before.Epoch > 0 && (before.K != after.K || before.Parts() != after.Parts() || !slices.EqualFunc(before.Classes, after.Classes, sameK)):
		return ReasonK
	case before.Epoch > 0 && before.Rate != after.Rate:
		return ReasonRate
	case len(after.Owed) > len(before.Owed):
		return ReasonLoss
	case len(after.Owed) < len(before.Owed):
		return ReasonReturn
	case left:
		return ReasonLeave
	case after.Spread:
		return ReasonSpread
	case before.Epoch == 0 || after.Epoch > before.Epoch+1:
		return ReasonSeveral
	default:
		return ReasonRepair
	}
}

func sameK(a, b membership.Class) bool { return a.Upstream == b.Upstream && a.K == b.K }

// someLeft reports whether a member of the view before is not in the one after.
func someLeft(before, after *membership.View) bool {
	return before != nil && slices.ContainsFunc(before.Members, func(m membership.Member) bool {
		_, in := after.Member(m.Node)
		return !in
	})
}
