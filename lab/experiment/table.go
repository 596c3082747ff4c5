package experiment

import (
	"encoding/csv"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/kgate/kgate/lab/meter"
)

// Table is what an experiment has measured.
type Table struct {
	Keys    []string
	Figures []Figure
	Rows    []Row
}

// Figure is one measured column.
type Figure struct {
	// Name with its unit, as the head of a column: "mean_s".
	Name string
	// About is what it is.
	About string
}

// Row is one configuration.
type Row struct {
	// Keys are the values of the table's keys.
	Keys []string
	// Values of the table's figures; NaN where there is none.
	Values []meter.Interval
}

// at returns a figure of the row with these keys. The mean is NaN if there is
// none.
func (t *Table) at(figure string, keys ...string) meter.Interval {
	none := meter.Interval{Mean: math.NaN(), Half: math.NaN()}
	f := slices.IndexFunc(t.Figures, func(have Figure) bool { return have.Name == figure })
	if f < 0 {
		return none
	}
	for i := range t.Rows {
		if slices.Equal(t.Rows[i].Keys, keys) {
			return t.Rows[i].Values[f]
		}
	}
	return none
}

// Values returns the different values of a key, in the order of the table.
func (t *Table) Values(key string) []string {
	k := slices.Index(t.Keys, key)
	var values []string
	for i := range t.Rows {
		if k >= 0 && !slices.Contains(values, t.Rows[i].Keys[k]) {
			values = append(values, t.Rows[i].Keys[k])
		}
	}
	return values
}

// WriteCSV writes the table with a line of heads. After each figure comes half of
// its 95 % confidence interval; what there is not is empty.
func (t *Table) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	head := slices.Clone(t.Keys)
	for _, f := range t.Figures {
		head = append(head, f.Name, f.Name+"_ci95")
	}
	if err := out.Write(head); err != nil {
		return err
	}
	for i := range t.Rows {
		line := slices.Clone(t.Rows[i].Keys)
		for _, v := range t.Rows[i].Values {
			line = append(line, number(v.Mean), number(v.Half))
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// number formats v with six digits, so that the last bits of sums do not show.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
