package meter

import "math"

// Interval is a mean over independent runs with its 95 % confidence interval,
// Mean - Half to Mean + Half.
type Interval struct {
	Mean, Half float64
	Runs       int
}

// studentT95 has the two-sided 95 % quantiles of Student's t for 1, 2, ...
// degrees of freedom.
var studentT95 = []float64{
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
	2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
}

// Confidence returns the interval of values that come from independent runs.
// One run alone has none: Half is NaN.
func Confidence(values []float64) Interval {
	n := float64(len(values))
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	in := Interval{Mean: sum / n, Half: math.NaN(), Runs: len(values)}
	if len(values) < 2 {
		return in
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - in.Mean) * (v - in.Mean)
	}
	const normal = 1.960
	t := normal + 2.4/(n-1) // the tail of the table, to three digits
	if df := len(values) - 1; df <= len(studentT95) {
		t = studentT95[df-1]
	}
	in.Half = t * math.Sqrt(squares/(n-1)/n)
	return in
}
