package pace

import (
	"math"
	"time"
)

const (
	// keep is for how long an account saves up unused bytes.
	keep = 8 * time.Millisecond
	// piece is how much of a token's rate a transfer takes at once.
	piece = 2 * time.Millisecond
	// least bounds both from below, in bytes: smaller reads cost more than they are worth. If a
	// token needs longer than slow to gain as much, its gain in slow is the bound: otherwise a
	// transfer would move nothing for seconds, and would seem to stand still.
	least = 4 << 10
	slow  = 250 * time.Millisecond
	// Without a rate a transfer takes first bytes, and then what it moves in about brief, between
	// least and most: bytes that were taken are not subject to a rate that is set afterwards.
	brief = 20 * time.Millisecond
	first = 64 << 10
	most  = 1 << 20
)

// burst returns how many bytes an account saves up for each token of a rate.
func burst(each float64) float64 { return max(each*keep.Seconds(), smallest(each)) }

// chunk returns how many bytes a transfer takes at once.
func chunk(each float64) float64 { return max(math.Floor(each*piece.Seconds()), smallest(each)) }

// smallest returns the lower bound of burst and chunk.
func smallest(each float64) float64 { return max(1, min(least, math.Floor(each*slow.Seconds()))) }

// Burst returns how many bytes beyond rate*t all gateways together may move in a time t, in a pool
// with this number of tokens.
func Burst(rate int64, tokens int) int64 {
	each := float64(rate) / float64(tokens)
	return int64(math.Ceil(float64(tokens) * (burst(each) + chunk(each))))
}

// account holds the bytes that a gateway may still move, of one pool and in one direction. It is not
// safe for concurrent use. Times are a monotonic clock's, from any origin. The zero value has no rate.
type account struct {
	tokens int
	each   float64 // bytes per second of each token; 0: there is no rate
	credit float64
	at     time.Duration
	gained float64 // in all
}

// Set sets the number of tokens here and the bytes per second that each carries; 0: there is no rate.
func (a *account) Set(now time.Duration, tokens int, each float64) {
	a.advance(now)
	a.tokens, a.each = tokens, each
	a.credit = min(a.credit, a.most())
}

// Share returns how many bytes per second the account gains; 0 without a rate, too.
func (a *account) Share() float64 { return float64(a.tokens) * a.each }

// most returns the largest credit of the account.
func (a *account) most() float64 {
	if a.each == 0 {
		return 0
	}
	return float64(a.tokens) * burst(a.each)
}

func (a *account) advance(now time.Duration) {
	if now > a.at {
		gain := a.Share() * (now - a.at).Seconds()
		a.gained += gain
		a.credit = min(a.credit+gain, a.most())
	}
	a.at = max(a.at, now)
}

// ask returns how many of want bytes are taken at once.
func (a *account) ask(want int) int {
	if a.each == 0 {
		return min(want, least) // the rate has just been taken away: Flow.Take asks no account then
	}
	return min(want, int(chunk(a.each)))
}

// Take takes want bytes, or a chunk if that is less, and returns the number; 0: the credit is too small.
func (a *account) Take(now time.Duration, want int) int {
	a.advance(now)
	n := a.ask(want)
	switch {
	case a.each == 0:
	case a.credit < float64(n):
		return 0
	default:
		a.credit -= float64(n)
	}
	return n
}

// Return gives back n bytes that were taken and not moved.
func (a *account) Return(now time.Duration, n int) {
	a.advance(now)
	a.credit = min(a.credit+float64(n), a.most())
}

// Wait returns the time until Take gives something; negative: never, unless Set is called.
func (a *account) Wait(want int) time.Duration {
	switch lack := float64(a.ask(want)) - a.credit; {
	case a.each == 0 || lack <= 0:
		return 0
	case a.tokens == 0:
		return -1
	default:
		return time.Duration(math.Ceil(lack / a.Share() * float64(time.Second)))
	}
}
