package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kgate/kgate/internal/admission"
)

// Rate is in bytes per second; 0: no bound.
type Rate int64

// rateUnits, the largest first of each kind.
var rateUnits = []struct {
	name  string
	bytes float64
}{
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"Gbit", 1e9 / 8},
	{"Mbit", 1e6 / 8},
	{"kbit", 1e3 / 8},
	{"B", 1},
}

const hintRate = "write a number and a unit, such as 100MiB/s, 25MB/s or 800Mbit/s; 0 is no bound"

// ParseRate reads a rate such as 100MiB/s, 25MB/s or 800Mbit/s, or 0.
func ParseRate(s string) (Rate, error) {
	if s == "0" {
		return 0, nil
	}
	amount, ok := strings.CutSuffix(s, "/s")
	if !ok {
		return 0, problem(quote(s)+" is not a rate", hintRate)
	}
	for _, unit := range rateUnits {
		digits, ok := strings.CutSuffix(amount, unit.name)
		if !ok || strings.Trim(digits, "0123456789.") != "" {
			continue
		}
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			break
		}
		switch n *= unit.bytes; {
		case n > admission.MaxRate:
			return 0, problem(quote(s)+" is too much", "write 0 for no bound")
		case n < 1:
			return 0, problem(quote(s)+" is nothing", "write at least 1KiB/s for each slot; 0 is no bound")
		}
		return Rate(math.Floor(n)), nil
	}
	return 0, problem(quote(s)+" is not a rate", hintRate)
}

// UnmarshalText reads a rate.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// String formats r as the file has it.
func (r Rate) String() string {
	if r == 0 {
		return "0"
	}
	for _, unit := range rateUnits {
		if n := float64(r) / unit.bytes; n == math.Floor(n) && n >= 1 && n < 1e6 {
			return fmt.Sprintf("%.0f%s/s", n, unit.name)
		}
	}
	return fmt.Sprintf("%dB/s", int64(r))
}

// Rates limits how many bytes per second move in bodies of requests and answers, and in
// TCP connections. 0: no limit.
type Rates struct {
	// Down is what all gateways together send to clients, such as 100MiB/s, 25MB/s or
	// 800Mbit/s.
	Down Rate `yaml:"down"`
	// Up is the same from clients to the upstreams.
	Up Rate `yaml:"up"`
	// PerRequest is what one request may move in either direction.
	PerRequest Rate `yaml:"per_request"`
}

func (v *validator) rates(key string, p Pool) {
	for _, r := range []struct {
		name string
		rate Rate
	}{{"down", p.Rate.Down}, {"up", p.Rate.Up}} {
		if r.rate > 0 && p.K > 0 && int64(r.rate) < admission.LeastRate*int64(p.K) {
			v.wrong(key+"."+r.name, fmt.Sprintf("%v is too little for k: %d", r.rate, p.K), fmt.Sprintf("write at least 1KiB/s for each slot: %v, or a smaller k", Rate(admission.LeastRate*p.K)))
		}
	}
	if p.Rate.PerRequest > 0 && p.Rate.PerRequest < admission.LeastRate {
		v.wrong(key+".per_request", fmt.Sprintf("%v is too little", p.Rate.PerRequest), "write at least 1KiB/s")
	}
}
