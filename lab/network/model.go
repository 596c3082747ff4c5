package network

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kgate/kgate/lab/sim"
)

// Model is the delays of a network.
type Model interface {
	sim.Network
	// Mean is the mean delay between two nodes.
	Mean() time.Duration
}

// Constant is a network in which every message takes the same time.
type Constant time.Duration

// Delay implements [sim.Network].
func (c Constant) Delay(_, _ int, _ *rand.Rand) time.Duration { return time.Duration(c) }

// Steady implements [sim.Network].
func (Constant) Steady() bool { return true }

// Mean implements [Model].
func (c Constant) Mean() time.Duration { return time.Duration(c) }

// Jitter is a network in which a message takes Base and an exponential part of
// mean Extra.
type Jitter struct{ Base, Extra time.Duration }

// Delay implements [sim.Network].
func (j Jitter) Delay(_, _ int, r *rand.Rand) time.Duration {
	return j.Base + time.Duration(r.ExpFloat64()*float64(j.Extra))
}

// Steady implements [sim.Network].
func (j Jitter) Steady() bool { return j.Extra == 0 }

// Mean implements [Model].
func (j Jitter) Mean() time.Duration { return j.Base + j.Extra }

// Uniform is a network in which a message takes Low to High, all alike. Messages
// are never later than High: for protocols that count on a bound.
type Uniform struct{ Low, High time.Duration }

// Delay implements [sim.Network].
func (u Uniform) Delay(_, _ int, r *rand.Rand) time.Duration {
	return u.Low + time.Duration(r.Int64N(int64(u.High-u.Low)+1))
}

// Steady implements [sim.Network].
func (u Uniform) Steady() bool { return u.Low == u.High }

// Mean implements [Model].
func (u Uniform) Mean() time.Duration { return (u.Low + u.High) / 2 }

// Matrix is a network in which each pair of nodes has its own delay.
type Matrix struct {
	nodes  int
	delays []uint32 // one-way, in microseconds, row by row
	mean   time.Duration
}

func newMatrix(nodes int, oneWay func(i, j int) time.Duration) *Matrix {
	m := &Matrix{nodes: nodes, delays: make([]uint32, nodes*nodes)}
	var sum time.Duration
	for i := range nodes {
		for j := range nodes {
			if i != j {
				d := oneWay(i, j)
				m.delays[i*nodes+j] = uint32(d.Microseconds())
				sum += d
			}
		}
	}
	if pairs := nodes * (nodes - 1); pairs > 0 {
		m.mean = sum / time.Duration(pairs)
	}
	return m
}

// Delay implements [sim.Network].
func (m *Matrix) Delay(from, to int, _ *rand.Rand) time.Duration {
	return time.Duration(m.delays[from*m.nodes+to]) * time.Microsecond
}

// Steady implements [sim.Network].
func (*Matrix) Steady() bool { return true }

// Mean implements [Model].
func (m *Matrix) Mean() time.Duration { return m.mean }

// Nodes returns how many nodes there are delays for.
func (m *Matrix) Nodes() int { return m.nodes }

// Max returns the largest delay.
func (m *Matrix) Max() time.Duration {
	var most uint32
	for _, d := range m.delays {
		most = max(most, d)
	}
	return time.Duration(most) * time.Microsecond
}

// Sample returns the network of so many of the nodes, chosen at random.
func (m *Matrix) Sample(nodes int, seed uint64) (*Matrix, error) {
	if nodes > m.nodes {
		return nil, fmt.Errorf("network: %d nodes of a network of %d", nodes, m.nodes)
	}
	chosen := rand.New(rand.NewPCG(seed, 1)).Perm(m.nodes)[:nodes]
	return newMatrix(nodes, func(i, j int) time.Duration {
		return m.Delay(chosen[i], chosen[j], nil)
	}), nil
}
