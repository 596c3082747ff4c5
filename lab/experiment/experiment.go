package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kgate/kgate/lab/network"
)

// Experiment is one question to the lab.
type Experiment struct {
	// Name by which it is run.
	Name string
	// Source is whose figure it is; "" if ours.
	Source string
	// About is one line for people.
	About string
	// Quick is the default size, Full the paper's size or the largest that makes sense.
	Quick, Full Size
	// Plots of the table, in the order in which they are shown.
	Plots []Plot

	design func(setting) (*design, error)
	// Claims are what the table is compared with.
	Claims []*Claim
}

// Size is how much is simulated.
type Size struct {
	// Seeds is the number of runs of each configuration.
	Seeds int
	// Entries is the number of critical sections measured per run; per node in
	// the experiments of the paper.
	Entries int
}

// setting is what a design depends on.
type setting struct {
	Size
	// Full is the large size, which may have more configurations too.
	Full    bool
	Latency network.Latency
}

// Plot says how rows of a table become a figure: a line for each combination of
// the series keys, over the numbers of the key X.
type Plot struct {
	Title string
	// X and Y name a key and a figure.
	X, Y           string
	XLabel, YLabel string
	LogX, LogY     bool
	Series         []string
	// Where keeps the rows that have one of these values of a key.
	Where map[string][]string
}

// design is what an experiment runs.
type design struct {
	// name is common to the experiments that look at the same runs.
	name    string
	keys    []string
	figures []Figure
	cells   []cell
}

// cell is what one run measures: one or several rows of the table.
type cell struct {
	rows    [][]string // values of the design's keys
	measure func(seed uint64) ([][]float64, error)
}

// errUnknown means that there is no such experiment.
var errUnknown = errors.New("experiment: unknown")

// All returns the experiments in the order of the report.
func All() []*Experiment {
	all := slices.Concat(seed000(), []*Experiment{recoveryTimes()}, seed003(), seed004(), []*Experiment{
		variability(), lateCost(), resting(), stall(), nodeScaling(), tokenScaling(), skew(), field(), safety(),
	})
	for _, e := range all {
		for _, c := range e.Claims {
			c.Experiment = e.Name
		}
	}
	return all
}

// Find returns the experiment of this name.
func Find(name string) (*Experiment, error) {
	var names []string
	for _, e := range All() {
		if e.Name == name {
			return e, nil
		}
		names = append(names, e.Name)
	}
	return nil, fmt.Errorf("%w: %q; there are %s", errUnknown, name, strings.Join(names, ", "))
}
