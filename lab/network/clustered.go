package network

import (
	"math"
	"math/rand/v2"
	"time"
)

// cluster is a place in the plane where many nodes are; distances are
// milliseconds of round trip.
type cluster struct{ share, x, y float64 }

// clusters are set so that the round trips of 100 nodes are distributed about as in the King data set:
// 5 % below 51 ms, half below 160 ms, 5 % above 388 ms.
var clusters = []cluster{{.45, 0, 0}, {.30, 95, 15}, {.17, 190, 40}, {.08, 60, -70}}

// Clustered makes up the delays between nodes in a plane with four clusters,
// each node behind an access line of its own, scaled as [ParseKing] does it.
func Clustered(nodes int, seed uint64) *Matrix {
	const (
		around     = 18 // deviation about a cluster's centre, in both directions
		accessMu   = 2.6
		accessSdev = 0.9
		noise      = 0.18
		least      = 2 * time.Millisecond
	)
	r := rand.New(rand.NewPCG(seed, 2))
	x, y, access := make([]float64, nodes), make([]float64, nodes), make([]float64, nodes)
	for i := range nodes {
		c := pick(r)
		x[i], y[i] = c.x+around*r.NormFloat64(), c.y+around*r.NormFloat64()
		access[i] = math.Exp(accessMu + accessSdev*r.NormFloat64())
	}
	roundTrip := make([]float64, nodes*nodes)
	for i := range nodes {
		for j := range i {
			rtt := math.Hypot(x[i]-x[j], y[i]-y[j]) + access[i] + access[j]
			rtt *= math.Exp(noise * r.NormFloat64())
			roundTrip[i*nodes+j], roundTrip[j*nodes+i] = rtt, rtt
		}
	}
	raw := newMatrix(nodes, func(i, j int) time.Duration {
		return time.Duration(roundTrip[i*nodes+j] / 2 * float64(time.Millisecond))
	})
	return raw.scaled(kingMean/2, least/2, kingMax/2)
}

func pick(r *rand.Rand) cluster {
	u := r.Float64()
	for _, c := range clusters {
		if u -= c.share; u < 0 {
			return c
		}
	}
	return clusters[0]
}
