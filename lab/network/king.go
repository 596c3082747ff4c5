package network

import (
	"bufio"
	"fmt"
	"io"
	"time"
)

// The round trips of the King data set as the paper gives them.
const (
	kingMean = 182 * time.Millisecond
	kingMax  = 800 * time.Millisecond
)

// maxKing bounds the nodes of a file.
const maxKing = 4096

// ParseKing reads measured delays in p2psim's format: lines "node i", and lines
// "i,j L" with a one-way delay of L milliseconds; what else there is does not
// count. The delays are scaled so that the mean round trip is 182 ms, none
// above 800 ms.
func ParseKing(r io.Reader) (*Matrix, error) {
	type pair struct{ i, j int }
	oneWay := make(map[pair]time.Duration)
	nodes := 0
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var i, j, ms int
		if n, _ := fmt.Sscanf(lines.Text(), "%d,%d %d", &i, &j, &ms); n != 3 {
			continue
		}
		if i < 1 || j < 1 || i == j || ms < 0 || max(i, j) > maxKing {
			return nil, fmt.Errorf("network: %q is no delay between two nodes", lines.Text())
		}
		nodes = max(nodes, i, j)
		oneWay[pair{min(i, j) - 1, max(i, j) - 1}] = time.Duration(ms) * time.Millisecond
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("network: delays: %w", err)
	}
	if want := nodes * (nodes - 1) / 2; nodes < 2 || len(oneWay) != want {
		return nil, fmt.Errorf("network: delays of %d pairs of %d nodes; is it a p2psim topology?", len(oneWay), nodes)
	}
	measured := newMatrix(nodes, func(i, j int) time.Duration { return oneWay[pair{min(i, j), max(i, j)}] })
	return measured.scaled(kingMean/2, 0, kingMax/2), nil
}

// scaled returns the network with delays multiplied so that, cut off at least and
// most, their mean is mean.
func (m *Matrix) scaled(mean, least, most time.Duration) *Matrix {
	by := func(f float64) *Matrix {
		return newMatrix(m.nodes, func(i, j int) time.Duration {
			return min(max(time.Duration(f*float64(m.Delay(i, j, nil))), least), most)
		})
	}
	low, high := 0.0, 1000*float64(mean)/float64(max(m.mean, 1))
	for range 50 {
		if mid := (low + high) / 2; by(mid).mean < mean {
			low = mid
		} else {
			high = mid
		}
	}
	return by(high)
}
