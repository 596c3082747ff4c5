package report

import (
	"math"
	"strconv"
)

// axis maps numbers to places.
type axis struct {
	log       bool
	low, high float64
	used      bool
	from, to  float64
}

func (a *axis) include(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) || a.log && v <= 0 {
		return
	}
	if !a.used {
		a.low, a.high, a.used = v, v, true
	}
	a.low, a.high = min(a.low, v), max(a.high, v)
}

// pad keeps the outermost points off the frame.
func (a *axis) pad() {
	const share = .03
	if a.log {
		f := math.Pow(a.high/a.low, share)
		a.low, a.high = a.low/f, a.high*f
		if a.low == a.high {
			a.low, a.high = a.low/2, a.high*2
		}
		return
	}
	d := share * (a.high - a.low)
	if d == 0 {
		d = 1
	}
	a.low, a.high = a.low-d, a.high+d
}

// round widens the range to full steps.
func (a *axis) round() {
	if a.log {
		a.pad()
		return
	}
	if a.low == a.high {
		a.high = a.low + 1
	}
	step := a.step()
	a.low, a.high = math.Floor(a.low/step)*step, math.Ceil(a.high/step-1e-9)*step
}

// step is 1, 2 or 5 times a power of ten, for about six steps.
func (a *axis) step() float64 {
	raw := (a.high - a.low) / 6
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= raw {
			return f * power
		}
	}
	return 10 * power
}

func (a *axis) ticks() []float64 {
	var all []float64
	if !a.used {
		return nil
	}
	if !a.log {
		step := a.step()
		for i := math.Ceil(a.low / step); i*step <= a.high*(1+1e-9); i++ {
			all = append(all, i*step)
		}
		return all
	}
	within := []float64{1, 2, 5}
	if math.Log10(a.high/a.low) > 3.5 {
		within = within[:1]
	}
	for power := math.Pow(10, math.Floor(math.Log10(a.low))); power <= a.high; power *= 10 {
		for _, f := range within {
			if v := f * power; v >= a.low && v <= a.high {
				all = append(all, v)
			}
		}
	}
	return all
}

// at returns the place of v.
func (a *axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log(max(v, a.low)), math.Log(a.low), math.Log(a.high)
	}
	if high == low {
		return (a.from + a.to) / 2
	}
	return a.from + (a.to-a.from)*(v-low)/(high-low)
}

// label formats a number for people.
func label(v float64) string {
	if v == 0 {
		return "0" // and not -0
	}
	if math.Abs(v) >= 1e6 || math.Abs(v) < 1e-4 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	digits := 4 - int(math.Ceil(math.Log10(max(math.Abs(v), 1e-4))))
	s := strconv.FormatFloat(v, 'f', max(digits, 0), 64)
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
