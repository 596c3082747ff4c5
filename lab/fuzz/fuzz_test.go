package fuzz

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

var (
	seeds    = flag.Uint64("fuzz.seeds", 400, "how many seeds TestSeeds plays, at most 100 of them with -short; 5000 with KGATE_SOAK if it is 400")
	first    = flag.Uint64("fuzz.first", 0, "the first of them")
	try      = flag.String("fuzz.try", "", "a seed to play before the others, and no other if it fails")
	findings = flag.Int("fuzz.findings", 0, "after how many failures TestSeeds ends")
)

// Every seed, in both modes, with every fault: the upstream never sees more than
// it may, and when the faults are over everything comes to order.
func TestSeeds(t *testing.T) {
	switch {
	case testing.Short():
		*seeds = min(*seeds, 100)
	case os.Getenv("KGATE_SOAK") != "" && *seeds == 400:
		*seeds = 5000
	}
	if seed, err := strconv.ParseUint(*try, 10, 64); err == nil {
		for _, f := range (Campaign{First: seed, Seeds: 1}.Run(t.Context())).Findings {
			t.Fatalf("%v\nkgate-lab replay %s", f.Err, f.Scenario.Args())
		}
	}
	began := time.Now()
	r := Campaign{First: *first, Seeds: *seeds, Parallel: 2, Findings: *findings}.Run(t.Context())
	t.Logf("%d seeds in %.1f s: %d requests served, %d events, %d epochs; paused processes had up to %d requests open beyond their leases",
		r.Seeds, time.Since(began).Seconds(), r.Served, r.Events, r.Epochs, r.Apart)
	for _, f := range r.Findings {
		t.Errorf("%v\nkgate-lab replay %s", f.Err, f.Scenario.Args())
	}
	if r.Seeds != *seeds && len(r.Findings) == 0 || r.Served < 50*int(*seeds) || r.Epochs < 2*r.Runs {
		t.Error("too little has happened")
	}
}

// hash plays a scenario and returns the hash of its trace.
func hash(t *testing.T, s *Scenario) string {
	t.Helper()
	h := sha256.New()
	if _, err := Run(s, h); err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// A seed has one trace, byte for byte.
func TestReplay(t *testing.T) {
	for seed := range uint64(20) {
		for _, mode := range []Mode{Safety, Liveness} {
			if a, b := hash(t, New(seed, mode)), hash(t, New(seed, mode)); a != b {
				t.Errorf("seed %d, %s: two traces", seed, mode)
			}
		}
	}
}

// What is left of a scenario is told by its arguments.
func TestArgs(t *testing.T) {
	s := New(11, Safety)
	if got := s.Args(); got != "11 --mode safety" {
		t.Errorf("whole: %s", got)
	}
	kept := s.Keep([]int{0, 1, 2, 5})
	if got := kept.Args(); got != "11 --mode safety --keep 0-2,5" {
		t.Errorf("kept: %s", got)
	}
	if kept.Ops[3] != s.Ops[5] {
		t.Error("other operations than told")
	}
	for _, text := range []string{"0", "0-3,7", "none", "4-4,9"} {
		ns, err := ParseRanges(text)
		if err != nil {
			t.Error(err)
		}
		if again, err := ParseRanges(ranges(ns)); err != nil || !slices.Equal(again, ns) {
			t.Errorf("%s: %v, %v", text, again, err)
		}
	}
	for _, text := range []string{"", "x", "3-1", "-2", "0-99999999999", "1,,2"} {
		if _, err := ParseRanges(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// Shrinking keeps what fails, and only that.
func TestShrink(t *testing.T) {
	// A run of which too little is left to be in order in time is a failure like
	// any other: the judge of the upstream is off by one here.
	defer func(was int) { slack = was }(slack)
	slack = -1
	var s *Scenario
	var err error
	for seed := uint64(0); ; seed++ {
		s = New(seed, Safety)
		if _, err = Run(s, nil); err != nil {
			break
		}
	}
	small, what := Shrink(s, err, 500)
	t.Logf("%d operations, %d hosts: %v\nshrunk to %d operations, %d hosts: %v\n%s", len(s.Ops), s.Hosts, err, len(small.Ops), small.Hosts, what, small.Args())
	for _, o := range small.Ops {
		t.Log(o)
	}
	if len(small.Ops) > s.K+1 {
		t.Errorf("%d operations where %d requests would do", len(small.Ops), s.K)
	}
	var a, b bytes.Buffer
	_, errA := Run(small, &a)
	_, errB := Run(New(s.Seed, s.Mode).WithHosts(small.Hosts).Keep(small.kept()), &b)
	if errA == nil || errB == nil || errA.Error() != errB.Error() || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the shrunk scenario is not what its arguments say")
	}
}
