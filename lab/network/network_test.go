package network_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/lab/network"
)

// topology is a file in p2psim's format.
func topology(nodes int, oneWay func(i, j int) int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "topology E2EGraph %d\nfailure_model ConstantFailureModel delay=1\nloss_rate 0\n\n", nodes)
	for i := range nodes {
		fmt.Fprintf(&b, "node %d\n", i+1)
	}
	for i := range nodes {
		for j := range i {
			fmt.Fprintf(&b, "%d,%d %d\n", j+1, i+1, oneWay(i, j))
		}
	}
	return b.String()
}

func checkKing(t *testing.T, m *network.Matrix, largest time.Duration) {
	t.Helper()
	if d := (m.Mean() - 91*time.Millisecond).Abs(); d > 200*time.Microsecond {
		t.Errorf("mean one-way delay %v, want 91 ms", m.Mean())
	}
	if m.Max() > 400*time.Millisecond || m.Max() < largest {
		t.Errorf("largest one-way delay %v, want %v to 400 ms", m.Max(), largest)
	}
}

func TestParseKing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	m, err := network.ParseKing(strings.NewReader(topology(50, func(int, int) int { return 2 + int(r.ExpFloat64()*70) })))
	if err != nil {
		t.Fatal(err)
	}
	checkKing(t, m, 400*time.Millisecond)
	if m.Nodes() != 50 || m.Delay(3, 7, nil) != m.Delay(7, 3, nil) {
		t.Error("not symmetric")
	}
	s, err := m.Sample(20, 1)
	if err != nil || s.Nodes() != 20 {
		t.Error(err)
	}
	if _, err := m.Sample(51, 1); err == nil {
		t.Error("51 nodes of 50")
	}
}

// The data set itself, where there is one: KGATE_KING names the file.
func TestKingFile(t *testing.T) {
	path := os.Getenv("KGATE_KING")
	if path == "" {
		t.Skip("KGATE_KING names no file with the King delays")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := network.ParseKing(f)
	if err != nil {
		t.Fatal(err)
	}
	checkKing(t, m, 400*time.Millisecond)
	t.Logf("%d nodes", m.Nodes())
}

func TestParseKingRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":        "",
		"a pair missing": "1,2 5\n1,3 5\n",
		"itself":         "1,1 5\n",
		"negative":       "1,2 -5\n",
		"a huge number":  "1,99999999 5\n",
	} {
		if _, err := network.ParseKing(strings.NewReader(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestClustered(t *testing.T) {
	for seed := range uint64(5) {
		m := network.Clustered(100, seed)
		checkKing(t, m, 250*time.Millisecond)
		var rtts []time.Duration
		for i := range 100 {
			for j := range i {
				rtts = append(rtts, 2*m.Delay(i, j, nil))
			}
		}
		slices.Sort(rtts)
		median, p95 := rtts[len(rtts)/2], rtts[len(rtts)*95/100]
		if median < 140*time.Millisecond || median > 175*time.Millisecond || p95 < 320*time.Millisecond || p95 > 450*time.Millisecond {
			t.Errorf("seed %d: median round trip %v, p95 %v", seed, median, p95)
		}
	}
	if a, b := network.Clustered(10, 1), network.Clustered(10, 1); a.Delay(1, 2, nil) != b.Delay(1, 2, nil) {
		t.Error("the same seed gives another network")
	}
	network.Clustered(1, 1)
}

func TestJitter(t *testing.T) {
	j := network.Jitter{Base: time.Millisecond, Extra: time.Millisecond}
	r := rand.New(rand.NewPCG(1, 1))
	var sum time.Duration
	for range 10000 {
		sum += j.Delay(0, 1, r)
	}
	if mean := sum / 10000; (mean - j.Mean()).Abs() > 50*time.Microsecond {
		t.Errorf("mean %v, want %v", mean, j.Mean())
	}
}
