package experiment

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/kgate/kgate/lab/protocol/token"
)

// recoveryTimes is section 3.2 of seed 001: how long it takes to check all
// processes after the token's holder has crashed.
func recoveryTimes() *Experiment {
	return &Experiment{
		Name: "001-eq", Source: "seed 001, equations 3.2 to 3.5",
		About: "checking 100 processes, 20 of them failed, with time-outs and with a failure detector: formula and simulation",
		Quick: Size{Seeds: 5}, Full: Size{Seeds: 100},
		Plots: []Plot{
			{
				Title: "What the detector saves, simulated", X: "ts_ms", Y: "gain_s", XLabel: "a signal to or from the detector, Ts, ms", YLabel: "seconds saved",
				Series: []string{"p"},
			},
			{
				Title: "What the detector saves, equation 3.5 corrected", X: "ts_ms", Y: "gain_formula_s", XLabel: "a signal to or from the detector, Ts, ms", YLabel: "seconds saved",
				Series: []string{"p"},
			},
		},
		design: func(setting) (*design, error) {
			d := &design{
				name: "001-eq", keys: []string{"p", "ts_ms"},
				figures: []Figure{
					{"timeouts_s", "with time-outs, simulated"},
					{"timeouts_formula_s", "equation 3.3"},
					{"detector_s", "with the detector, simulated"},
					{"detector_formula_s", "equation 3.4"},
					{"gain_s", "difference of the simulated times"},
					{"gain_formula_s", "equation 3.5 without its last term"},
					{"at_once_s", "time-outs, all processes asked at once, simulated"},
				},
			}
			for _, p := range knownShares {
				for _, ts := range signals {
					d.cells = append(d.cells, cell{rows: [][]string{{text(p), text(ts)}}, measure: func(seed uint64) ([][]float64, error) {
						c := checkOf(p, ts)
						slow, fast := c.Simulate(token.InTurn, seed), c.Simulate(token.Detector, seed)
						return [][]float64{{
							slow.Seconds(), c.WithTimeouts().Seconds(), fast.Seconds(), c.WithDetector().Seconds(),
							(slow - fast).Seconds(), c.Gain().Seconds(), c.Simulate(token.AtOnce, seed).Seconds(),
						}}, nil
					}})
				}
			}
			return d, nil
		},
		checks: checkRecovery,
		finding: func(t *Table) string {
			return fmt.Sprintf("with p = .7 the detector saves time up to Ts = %.1f ms (p Nf (To - Tp) = 2 N Ts: %.1f ms); asking all at once takes %.2f s, with time-outs in turn %.1f s",
				evenSignal(t, .7), 1000*checkOf(.7, 0).Even().Seconds(), t.at("at_once_s", "0.7", "0").Mean, t.at("timeouts_s", "0.7", "0").Mean)
		},
	}
}

var (
	knownShares = []float64{0, .3, .5, .7, 1}
	signals     = []float64{0, 1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120} // ms
)

// checkOf is N = 100, Nf = 20, Tm = 20 ms, Tp = 5 ms, To = 1 s.
func checkOf(p, ts float64) token.Check {
	return token.Check{
		Others: 100, Failed: 20, Message: 20 * time.Millisecond, Handle: 5 * time.Millisecond, Timeout: time.Second,
		Signal: time.Duration(ts * float64(time.Millisecond)), Known: p,
	}
}

// evenSignal is the Ts, in ms, at which the simulated gain crosses zero.
func evenSignal(t *Table, p float64) float64 {
	for i := 1; i < len(signals); i++ {
		a, b := t.at("gain_s", text(p), text(signals[i-1])).Mean, t.at("gain_s", text(p), text(signals[i])).Mean
		if a >= 0 && b < 0 {
			return signals[i-1] + (signals[i]-signals[i-1])*a/(a-b)
		}
	}
	return math.NaN()
}

func checkRecovery(t *Table) []Check {
	worst, behind := 0.0, 0
	for _, row := range t.Rows {
		for _, pair := range [][2]string{{"timeouts_s", "timeouts_formula_s"}, {"detector_s", "detector_formula_s"}} {
			worst = max(worst, math.Abs(t.at(pair[0], row.Keys...).Mean/t.at(pair[1], row.Keys...).Mean-1))
		}
		if ts, _ := strconv.ParseFloat(row.Keys[1], 64); ts > 0 && t.at("gain_s", row.Keys...).Mean < 0 {
			behind++
		}
	}
	var found []string
	even := true
	for _, p := range knownShares[1:] {
		at, want := evenSignal(t, p), 1000*checkOf(p, 0).Even().Seconds()
		found = append(found, fmt.Sprintf("p = %g: %.1f ms (%.1f)", p, at, want))
		even = even && math.Abs(at/want-1) < .03
	}
	printed := -2 * 100 * .001 // as printed the first term is subtracted again
	return []Check{
		{What: "equations 3.3 and 3.4 against simulation", Quoted: "closed forms", Found: fmt.Sprintf("at most %.1f %% apart", 100*worst), Agrees: worst < .03, Why: "see the table"},
		{What: "the detector stops paying at p Nf (To - Tp) = 2 N Ts", Quoted: "follows from 3.5, corrected", Found: fmt.Sprint(slices.Clone(found)), Agrees: even, Why: "the simulated crossing is elsewhere"},
		{
			What: "equation 3.5 as printed, p = .7, Ts = 1 ms", Quoted: fmt.Sprintf("%.1f s: its last term cancels the first", printed),
			Found: fmt.Sprintf("%.2f s saved", t.at("gain_s", "0.7", "1").Mean), Agrees: false,
			Why: "3.3 - 3.4 is p Nf (To - Tp) - 2 N Ts; as printed the detector would never save anything",
		},
		{
			What: "the detector is faster", Quoted: "definitely; 2 N Ts is negligible", Found: fmt.Sprintf("slower in %d of the %d settings with Ts > 0", behind, len(t.Rows)*(len(signals)-1)/len(signals)),
			Agrees: behind == 0, Why: "true where a signal takes far less than p Nf To / 2N; with p = 0 the detector only costs",
		},
		{
			What: "one process after the other", Quoted: "3.3 and 3.4 add up the waits", Found: fmt.Sprintf("asked at once: %.2f s instead of %.1f s", t.at("at_once_s", "0.7", "0").Mean, t.at("timeouts_s", "0.7", "0").Mean),
			Agrees: false, Why: "the paper praises checks that run at the same time and then computes checks in turn. At once, the list saves time only if all failed processes are on it: one that is not costs the whole time-out",
		},
	}
}
