package network

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestParseLatency(t *testing.T) {
	for text, mean := range map[string]float64{"constant:5ms": .005, "jitter:5ms,1ms": .006, "clustered": .091} {
		l, err := ParseLatency(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := l.Model(20, 1)
		if err != nil || math.Abs(m.Mean().Seconds()/mean-1) > .02 || l.String() != text {
			t.Errorf("%s: mean %v, %v", text, m.Mean(), err)
		}
	}
	if l, err := ParseLatency(""); err != nil || l.model != nil {
		t.Error("nothing said is something")
	}
	for _, text := range []string{"constant", "constant:5", "constant:-1s", "jitter:1s", "king", "clustered:3", "lan"} {
		if _, err := ParseLatency(text); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
	file := filepath.Join(t.TempDir(), "king")
	if err := os.WriteFile(file, []byte("1,2 10\n1,3 20\n2,3 30\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := ParseLatency("king:" + file)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := l.Model(3, 1); err != nil || math.Abs(m.Mean().Seconds()-.091) > .001 {
		t.Errorf("king: %v, %v", m, err)
	}
	if _, err := l.Model(4, 1); err == nil {
		t.Error("four nodes of a file of three")
	}
}
