package rounds

import (
	"flag"
	"reflect"
	"testing"
	"time"

	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol/quorum"
)

var seeds = flag.Int("rounds.seeds", 300, "seeds of the fuzz for each protocol")

func small(opt quorum.Options) Config {
	opt.Resources, opt.Replicas = 3, 5
	return Config{
		Seed: 1, Nodes: 60, Protocol: opt, Network: network.Constant(50 * time.Millisecond),
		Rounds: 15, Requests: 3, Length: 10 * time.Second, Drain: 100,
	}
}

// The workload is the same under every protocol, everybody is served, and a run
// repeats.
func TestRounds(t *testing.T) {
	for _, form := range []quorum.Form{quorum.Sigma, quorum.EndToEnd, quorum.NonEndToEnd} {
		cfg := small(quorum.Options{Form: form, Poll: true})
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		load := uint64(0)
		for _, l := range r.Load {
			load += l
		}
		if r.Requests != 45 || r.Entries != 45 || r.Double != 0 || r.Stuck != 0 || load != r.Messages.Sum() || r.Alone.Mean() > 2*time.Second {
			t.Errorf("form %d: %+v", form, r)
		}
		if again, err := Run(cfg); err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("form %d: two runs differ", form)
		}
	}
}

func TestChurnNeedsLease(t *testing.T) {
	cfg := small(quorum.Options{})
	cfg.Churn = 10
	if _, err := Run(cfg); err == nil {
		t.Error("churn without a lease is taken")
	}
	cfg.Protocol.Lease = time.Minute
	if r, err := Run(cfg); err != nil || r.Double != 0 || r.Stuck != 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

// However often a request reaches the owner, it stands in line once, and nobody gets
// a token for nothing. A former owner passes it on once.
func TestOneTokenPerEntry(t *testing.T) {
	cfg := small(quorum.Options{Form: quorum.EndToEnd})
	cfg.Requests = 8
	r, err := Run(cfg)
	if err != nil || r.Double != 0 || r.Stuck != 0 {
		t.Fatal(err, r)
	}
	if tokens := r.Messages.Of("token"); tokens > r.Entries {
		t.Errorf("%d tokens for %d entries", tokens, r.Entries)
	}
	if most := uint64(cfg.Protocol.Replicas+1) * r.Requests; r.Messages.Of("enqueue") > most {
		t.Errorf("%d ENQUEUEs for %d requests, more than %d", r.Messages.Of("enqueue"), r.Requests, most)
	}
}

// No two owners, whatever happens, and everybody is served afterwards.
func TestFuzz(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 100)
	}
	var entries [quorum.NonEndToEnd + 1]uint64
	for seed := range uint64(n) {
		for form := quorum.Sigma; form <= quorum.NonEndToEnd; form++ {
			cfg := fuzz(seed, form)
			r, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			entries[form] += r.Entries
			if r.Double > 0 || r.Stuck > 0 {
				t.Fatalf("form %d, seed %d: %d let in beside another, %d not served: %+v", form, seed, r.Double, r.Stuck, cfg)
			}
		}
	}
	t.Logf("entries by form: %v", entries)
}
