package experiment

import (
	"slices"
	"testing"
)

// The tests of this file hold figures of experiments that take minutes, at sizes that take seconds.

// Seed 003, figures 2, 3 and 5, at lambda = .5 in the LAN.
func TestPaperFigures(t *testing.T) {
	needsTime(t)
	table := some(t, "003-fig2", Size{Seeds: 4, Entries: 400}, 0, with("LAN", half))
	at := func(figure, protocol string) float64 { return table.at(figure, "LAN", protocol, half).Mean }
	for _, c := range []struct {
		figure, protocol string
		low, high        float64
	}{
		{"mean_s", early, 353.7, 355.7},
		{"max_s", early, 366, 373},
		{"spread_s", early, 13, 17},
		{"messages", early, 7, 8.1},
		{"max_s", proxyA, 850, 1150},
		{"max_s", proxyB, 1400, 2600},
	} {
		if v := at(c.figure, c.protocol); !within(v, c.low, c.high) {
			t.Errorf("%s of %s is %.2f, want %g..%g", c.figure, c.protocol, v, c.low, c.high)
		}
	}
}

// Messages grow with the logarithm of the nodes, saturated or not.
func TestMessagesGrowAsLogN(t *testing.T) {
	needsTime(t)
	table := some(t, "n-scaling", Size{Seeds: 1, Entries: 4000}, 0, func(keys []string) bool {
		return slices.Contains([]string{"10", "100", "1000"}, keys[2]) && (keys[1] == early || keys[1] == "central")
	})
	for _, load := range []string{saturated, light} {
		if perDecade, explained := growth(table, load); !within(perDecade, 1.8, 3) || explained < .97 {
			t.Errorf("%s: %.2f messages per decade, a line explains %.3f", load, perDecade, explained)
		}
		if v := table.at("messages", load, "central", "1000").Mean; !within(v, 2.9, 3) {
			t.Errorf("%s: a central queue sends %.2f messages", load, v)
		}
	}
}

// Late binding is near the ideal line however much holds vary, and early is not.
func TestVariability(t *testing.T) {
	needsTime(t)
	table := some(t, "scv", Size{Seeds: 2, Entries: 40_000}, 0, func(keys []string) bool {
		return keys[0] == "open .9" && (keys[1] == "1" || keys[1] == "10")
	})
	for _, c := range []struct {
		scv          string
		late, atHand float64 // at most, over ideal and over central
		early        float64 // at least
	}{{"1", 1.2, 1.05, 4}, {"10", 1.18, 1.05, 5}} {
		at := func(p string) float64 { return table.at("mean_over_ideal", "open .9", c.scv, p).Mean }
		if l := at(late); l > c.late || l > c.atHand*at("central") || l < 1 {
			t.Errorf("SCV %s: late waits %.3f times as long as ideal, central %.3f", c.scv, l, at("central"))
		}
		if e := at(early); e < c.early {
			t.Errorf("SCV %s: early waits only %.1f times as long as ideal", c.scv, e)
		}
		if s := at(split); s < 5 {
			t.Errorf("SCV %s: a static split waits only %.1f times as long as ideal", c.scv, s)
		}
	}
}

// What one stall does stays under early binding and goes away under late.
func TestStallStays(t *testing.T) {
	needsTime(t)
	table := some(t, "stall", Size{Seeds: 2}, 0, func(keys []string) bool {
		return keys[1] == "5" && (keys[2] == "-1" || keys[2] == "10") && keys[0] != "central"
	})
	spread := func(p, minute string) float64 { return table.at("spread_s", p, "5", minute).Mean }
	if before, after := spread(early, "-1"), spread(early, "10"); after < before+1.5 {
		t.Errorf("early: spread %.2f s before a stall, %.2f s ten minutes after it", before, after)
	}
	if before, after := spread(late, "-1"), spread(late, "10"); after > before+.2 {
		t.Errorf("late: spread %.2f s before a stall, %.2f s ten minutes after it", before, after)
	}
}

// The figures behind ask_interval: auto.
func TestAskInterval(t *testing.T) {
	needsTime(t)
	table := some(t, "late-cost", Size{Seeds: 1, Entries: 8000}, 0, func(keys []string) bool {
		return keys[3] == "many" && (keys[0] == "3" || keys[0] == "10")
	})
	if best := cheapestAsk(table); best != 4 {
		t.Errorf("the shortest interval that is enough is %g N T: %+v", best, askSummary(table))
	}
	for _, row := range table.rowsOf("protocol", lateAt(4)) {
		if handoff := table.at("handoff_delays", row.Keys...).Mean; row.Keys[2] == "0.001" && handoff > 2.3 {
			t.Errorf("%v: a hand-off takes %.2f delays", row.Keys, handoff)
		}
	}
}

// needsTime skips what takes seconds and has no goroutine of its own.
func needsTime(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short")
	}
}

// One table over all: who goes on after a loss, and what an entry costs.
func TestField(t *testing.T) {
	needsTime(t)
	table := some(t, "field", Size{Seeds: 2, Entries: 600}, 0, with("1", text(fieldNodes)))
	at := func(figure, p string) float64 { return table.at(figure, "1", p, text(fieldNodes)).Mean }
	for p, served := range map[string]float64{
		late: 1, early: 1, failover: 1, "token-FD": 1, "sigma": 1, "e2e": 1, "none2e": 1, "central": 0, "Naimi-Trehel": 0, "ELMP": 0, "Suzuki-Kasami": 0,
	} {
		if v := at("served_after", p); v != served {
			t.Errorf("%s: %.2f of the survivors are served after a loss, want %g", p, v, served)
		}
	}
	for _, c := range []struct {
		p         string
		low, high float64
	}{{late, 7, 8.3}, {early, 5.2, 6.3}, {"Naimi-Trehel", 4.3, 5.2}, {"ELMP", 17, 22}, {"Suzuki-Kasami", 31, 32}, {"central", 2.7, 3}, {failover, 2.7, 3}} {
		if v := at("messages", c.p); !within(v, c.low, c.high) {
			t.Errorf("%s: %.1f messages per entry, want %g..%g", c.p, v, c.low, c.high)
		}
	}
}

// Seeds 000 and 002, figures 3a and 3b: how many messages fewer than Sigma's depends
// on how many wait.
func TestPeerMessages(t *testing.T) {
	needsTime(t)
	table := some(t, "000-fig3b", Size{Seeds: 1}, 0, func(keys []string) bool { return keys[0] == "20" || keys[0] == "60" })
	for _, c := range []struct {
		requests, protocol string
		low, high          float64
	}{
		{"20", e2e, 1.05, 1.8},
		{"20", nonE2E, 1.05, 1.8},
		{"20", sigmaQuiet, 1.05, 1.8},
		{"60", e2e, 2, 3.5},
		{"60", e2eTells, 1.5, 2.5},
		{"60", nonE2E, 1.4, 2.5},
	} {
		if v := table.at("sigma_over", c.requests, c.protocol).Mean; !within(v, c.low, c.high) {
			t.Errorf("%s requests per round: Sigma sends %.2f times as many messages as %s, not %g..%g", c.requests, v, c.protocol, c.low, c.high)
		}
	}
	if s, e := table.at("per_replica", "60", sigma).Mean, table.at("per_replica", "60", e2e).Mean; e > s/2 {
		t.Errorf("a node with replicas takes in %.2f messages under E2E, %.2f under Sigma", e, s)
	}
}

// Seed 000, figure 5: churn costs messages, and nobody is let in beside another one.
func TestPeerChurn(t *testing.T) {
	needsTime(t)
	table := some(t, "000-fig5", Size{Seeds: 1}, 0, func(keys []string) bool { return keys[0] == "0" || keys[0] == "200" })
	for _, p := range []string{e2e, nonE2E} {
		if grown := table.at("messages", "200", p).Mean / table.at("messages", "0", p).Mean; !within(grown, 1.02, 1.5) {
			t.Errorf("%s: churn makes the messages %.2f times as many", p, grown)
		}
	}
	if v := table.at("double", "200", e2e+", abstains").Mean; v != 0 {
		t.Errorf("%g were let in beside another one", v)
	}
}
