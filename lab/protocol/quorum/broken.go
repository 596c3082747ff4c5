package quorum

import "math"

// Broken returns the probability that resets let a second owner in: of M replicas
// that all know the owner, each is reset on its own with probability p before the
// owner has left and told it again, and all that are reset vote for somebody else.
// It takes as many as a quorum. The papers' 1-(1-p)^M is the probability that any
// replica at all is reset.
func Broken(replicas, quorum int, p float64) float64 {
	sum := 0.0
	for n := quorum; n <= replicas; n++ {
		choose := 1.0
		for i := range n {
			choose = choose * float64(replicas-i) / float64(i+1)
		}
		sum += choose * math.Pow(p, float64(n)) * math.Pow(1-p, float64(replicas-n))
	}
	return sum
}
