package experiment

import "math"

// The setting of section 3.2 of seed 001, in seconds: N processes are checked, of which Nf have failed.
const (
	checkedN   = 100.
	failedNf   = 20.
	messageTm  = .02
	handleTp   = .005
	timeoutTo  = 1.
	responseTe = 2*messageTm + handleTp // equation 3.2
)

// timeouts is equation 3.3: with time-outs, one process after the other.
func timeouts() float64 { return failedNf*timeoutTo + (checkedN-failedNf)*responseTe }

// detector is equation 3.4: the detector knows a share p of the failed ones; a signal to it takes ts.
func detector(p, ts float64) float64 {
	return 2*checkedN*ts + p*failedNf*handleTp + (1-p)*failedNf*timeoutTo + (checkedN-failedNf)*responseTe
}

// gain is equation 3.5 without its last term, which does not follow from 3.3 and 3.4.
func gain(p, ts float64) float64 { return p*failedNf*(timeoutTo-handleTp) - 2*checkedN*ts }

var (
	knownShares = []float64{0, .3, .5, .7, 1}
	signals     = []float64{0, .01, .02, .03, .04, .05, .06, .07, .08, .09, .1, .12} // s
)

// recoveryTimes is section 3.2 of seed 001, which has formulas and no simulation: closed forms.
func recoveryTimes() *Experiment {
	faster := func(*Table) float64 {
		n, all := 0, 0
		for _, p := range knownShares {
			for _, ts := range signals[1:] {
				if all++; gain(p, ts) > 0 {
					n++
				}
			}
		}
		return float64(n) / float64(all)
	}
	return &Experiment{
		Name: "001-eq", Source: "seed 001, equations 3.2 to 3.5",
		About: "closed form: checking 100 processes, 20 of them failed, with time-outs and with a failure detector",
		Quick: Size{Seeds: 2}, Full: Size{Seeds: 2},
		Plots: []Plot{{
			Title: "What the detector saves, equation 3.5 corrected", X: "ts_s", Y: "gain_s", XLabel: "a signal to or from the detector, Ts, s", YLabel: "seconds saved",
			Series: []string{"p"},
		}},
		design: func(setting) (*design, error) {
			d := &design{name: "001-eq", keys: []string{"p", "ts_s"}, figures: []Figure{
				{"timeouts_s", "equation 3.3"}, {"detector_s", "equation 3.4"}, {"gain_s", "equation 3.5 without its last term"},
			}}
			for _, p := range knownShares {
				for _, ts := range signals {
					d.cells = append(d.cells, cell{rows: [][]string{{text(p), text(ts)}}, measure: func(uint64) ([][]float64, error) {
						return [][]float64{{timeouts(), detector(p, ts), gain(p, ts)}}, nil
					}})
				}
			}
			return d, nil
		},
		Claims: []*Claim{
			{
				Paper: "001", Place: "3.3", Says: "checks in turn take Nf To + (N - Nf) Te, whoever begins", Closed: true,
				Parts: []Part{{What: "for k = 7, over that", Value: constantly((6*timeoutTo + (failedNf-6)*timeoutTo + (checkedN-failedNf)*responseTe) / (failedNf*timeoutTo + (checkedN-failedNf)*responseTe)), Agrees: around(1, .05)}},
			},
			{
				Paper: "001", Place: "3.3 to 3.5", Says: "3.5 is 3.3 less 3.4", Closed: true,
				Parts: []Part{{What: "s saved, as printed", Value: constantly(-2 * checkedN * .01), Agrees: around(gain(.7, .01), .05)}},
				Why:   "its last term takes the first away again: as printed the detector never saves anything. Without it 3.5 follows",
			},
			{
				Paper: "001", Place: "3.2", Says: "the detector is definitely faster; 2 N Ts is negligible", Closed: true,
				Parts: []Part{{What: "share of settings", Value: faster, Agrees: atLeast(1), Shape: atLeast(.5)}},
				Why:   "true while p Nf (To - Tp) > 2 N Ts; with p = 0 the detector only costs",
			},
			{
				Paper: "001", Place: "1, 3.1", Says: "the gain: processes are checked concurrently", Closed: true,
				Parts: []Part{{What: "3.4 over all asked at once", Value: func(*Table) float64 {
					return detector(.7, 0) / math.Max(timeoutTo, responseTe)
				}, Agrees: around(1, .05)}},
				Why: "3.3 and 3.4 add up the waits; asked at once, with plain time-outs, all 100 take one second",
			},
		},
	}
}
