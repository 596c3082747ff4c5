package network

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// errLatency means that a latency model cannot be understood.
var errLatency = errors.New("network: latency is constant:5ms, jitter:5ms,1ms, clustered, or king:FILE")

// Latency makes networks. The zero value leaves the choice to the experiment.
type Latency struct {
	name  string
	model func(nodes int, seed uint64) (Model, error)
}

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseLatency].
func (l *Latency) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLatency(string(text))
	return err
}

// ParseLatency reads what stands behind --latency:
//
//	constant:5ms     every message takes 5 ms
//	jitter:5ms,1ms   5 ms and an exponential part of 1 ms
//	clustered        a made-up WAN with the mean and maximum of the King data
//	king:FILE        measured delays, a p2psim topology, scaled to the same two
//
// A message's way is one-way throughout.
func ParseLatency(text string) (Latency, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "":
		return Latency{}, nil
	case "constant":
		d, err := delay(rest)
		return Always(text, d), err
	case "jitter":
		base, extra, _ := strings.Cut(rest, ",")
		b, err := delay(base)
		x, err2 := delay(extra)
		model := func(int, uint64) (Model, error) { return Jitter{Base: b, Extra: x}, nil }
		return Latency{text, model}, errors.Join(err, err2)
	case "clustered":
		if rest == "" {
			return MadeUp(), nil
		}
	case "king":
		return king(text, rest)
	}
	return Latency{}, fmt.Errorf("%w, not %q", errLatency, text)
}

func delay(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%w: %q is no delay", errLatency, text)
	}
	return d, nil
}

// Always makes networks in which every message takes d, under a name.
func Always(name string, d time.Duration) Latency {
	return Latency{name, func(int, uint64) (Model, error) { return Constant(d), nil }}
}

// MadeUp makes networks as [Clustered] does, with other places for the nodes under every seed.
func MadeUp() Latency {
	return Latency{"clustered", func(nodes int, seed uint64) (Model, error) {
		return Clustered(nodes, seed), nil
	}}
}

// king takes other nodes of the file under every seed.
func king(name, file string) (Latency, error) {
	f, err := os.Open(file)
	if err != nil {
		return Latency{}, fmt.Errorf("network: latency: %w", err)
	}
	defer f.Close()
	all, err := ParseKing(f)
	if err != nil {
		return Latency{}, fmt.Errorf("network: %s: %w", file, err)
	}
	return Latency{name, func(nodes int, seed uint64) (Model, error) { return all.Sample(nodes, seed) }}, nil
}

// String returns the text it was read from; "" if the experiment has the choice.
func (l Latency) String() string { return l.name }

// Model makes the network of one run.
func (l Latency) Model(nodes int, seed uint64) (Model, error) { return l.model(nodes, seed) }

// Or returns l, or other where l leaves the choice.
func (l Latency) Or(other Latency) Latency {
	if l.model == nil {
		return other
	}
	return l
}
