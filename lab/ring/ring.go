package ring

import (
	"math"
	"math/rand/v2"
)

// Success returns the probability that, of n nodes in a ring, no more than p
// neighbours in a row are lost when exactly lost nodes are, all choices alike.
func Success(n, lost, p int) float64 {
	alive := n - lost
	switch {
	case lost <= p:
		return 1
	case alive == 0:
		return 0
	}
	// Turn the ring so that it begins with a living node, one of alive in n
	// cases alike: what is left is to put lost nodes into the alive gaps behind
	// the living ones, at most p into each.
	return math.Exp(math.Log(float64(n)/float64(alive)) + logFillings(alive, lost, p) - logChoose(n, lost))
}

// logFillings returns the logarithm of the number of ways to put things, which
// are all the same, into so many gaps, at most p into each.
func logFillings(gaps, things, p int) float64 {
	// ways[j]: to put j things into the gaps so far, scaled by e^-scale.
	ways := make([]float64, things+1)
	ways[0] = 1
	scale := 0.0
	for range gaps {
		next := make([]float64, things+1)
		window, most := 0.0, 0.0
		for j := range next {
			window += ways[j]
			if j > p {
				window -= ways[j-p-1]
			}
			next[j] = max(window, 0)
			most = max(most, next[j])
		}
		for j := range next {
			next[j] /= most
		}
		scale += math.Log(most)
		ways = next
	}
	return math.Log(ways[things]) + scale
}

func logChoose(n, k int) float64 {
	lg := func(x int) float64 { v, _ := math.Lgamma(float64(x + 1)); return v }
	return lg(n) - lg(k) - lg(n-k)
}

// Independent returns the same probability when each node is lost with
// probability f on its own.
func Independent(n int, f float64, p int) float64 {
	sum := 0.0
	for lost := range n + 1 {
		log := logChoose(n, lost)
		if lost > 0 {
			log += float64(lost) * math.Log(f)
		}
		if lost < n {
			log += float64(n-lost) * math.Log(1-f)
		}
		sum += math.Exp(log) * Success(n, lost, p)
	}
	return min(sum, 1)
}

// Simulate draws trials catastrophes and returns the share of successes.
func Simulate(n, lost, p, trials int, seed uint64) float64 {
	r := rand.New(rand.NewPCG(seed, 6))
	gone := make([]bool, n)
	successes := 0
	for range trials {
		clear(gone)
		for _, i := range r.Perm(n)[:lost] {
			gone[i] = true
		}
		if LongestRun(gone) <= p {
			successes++
		}
	}
	return float64(successes) / float64(trials)
}

// LongestRun returns the length of the longest run of lost neighbours.
func LongestRun(gone []bool) int {
	longest, run := 0, 0
	for i := range 2 * len(gone) { // twice around, for runs over the end
		if !gone[i%len(gone)] {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return min(longest, len(gone))
}
