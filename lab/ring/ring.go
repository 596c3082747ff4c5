package ring

import "math"

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
	// Turn the ring so that it begins with a living node, which is so in alive of n equally likely
	// cases. Then distribute the lost nodes over the alive gaps behind the living ones, at most p
	// in each.
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
