package experiment

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Claim is a statement beside what its experiment measures.
type Claim struct {
	// Paper is its number, see the package's doc; "kgate" is no paper's.
	Paper string
	// Place in the paper: section, figure or table, or the page of 002.
	Place string
	// Experiment that measures it; [All] sets it.
	Experiment string
	// Says is the statement.
	Says  string
	Parts []Part
	// Closed says that nothing was simulated: Parts are arithmetic.
	Closed bool
	// Why is what lies behind another verdict than agreement.
	Why string
}

// ours is kgate in tables, and the Paper of claims that it makes itself.
const ours = "kgate"

// Part is one number of a claim, and within what it agrees. The spans are written before the run: a
// number that the paper gives agrees within 5 % (1 % where the paper says that it is stable, a tenth where it says "about"), a bound as it is
// given. What is outside but goes the same way, as Shape says, agrees in shape only.
type Part struct {
	// What is measured; "" if the claim says it.
	What   string
	Value  func(*Table) float64
	Agrees Span
	// Shape is the wider span; zero: there is none.
	Shape Span
}

// Span is from Low to High. One of them may be infinite.
type Span struct{ Low, High float64 }

func (s Span) has(v float64) bool { return v >= s.Low && v <= s.High }

// String formats the span for people.
func (s Span) String() string {
	switch {
	case math.IsInf(s.Low, -1):
		return "≤" + short(s.High)
	case math.IsInf(s.High, 1):
		return "≥" + short(s.Low)
	case s.Low == s.High:
		return short(s.Low)
	}
	return short(s.Low) + "-" + short(s.High)
}

func between(low, high float64) Span { return Span{low, high} }
func atMost(v float64) Span          { return Span{math.Inf(-1), v} }
func atLeast(v float64) Span         { return Span{v, math.Inf(1)} }

// around is v, give or take a share.
func around(v, share float64) Span { return Span{v * (1 - share), v * (1 + share)} }

// short formats a number with three digits, as the documentation does: .95.
func short(v float64) string {
	a := math.Abs(v)
	digits := 2
	if a != 0 {
		digits = 2 - int(math.Floor(math.Log10(a)))
	}
	text := strconv.FormatFloat(v, 'f', max(0, digits), 64)
	if a != 0 && a < 1e-4 || math.IsNaN(v) {
		text = strconv.FormatFloat(v, 'g', 2, 64)
	} else if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if rest, ok := strings.CutPrefix(text, "0."); ok {
		return "." + rest
	}
	if rest, ok := strings.CutPrefix(text, "-0."); ok {
		return "-." + rest
	}
	return text
}

// Verdict on a claim.
type Verdict string

// The verdicts.
const (
	Agrees    Verdict = "agrees"
	ShapeOnly Verdict = "shape only"
	Differs   Verdict = "differs"
)

// Judged is a claim with what was measured.
type Judged struct {
	*Claim
	Found     string
	Verdict   Verdict
	Tolerance string // the spans of the claim in one line
}

// tolerance is the spans of the claim in one line.
func (c *Claim) tolerance() string {
	var all []string
	for _, p := range c.Parts {
		text := p.named(p.Agrees.String())
		if p.Shape != (Span{}) {
			text += " (shape " + p.Shape.String() + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

func (p *Part) named(value string) string {
	if p.What == "" {
		return value
	}
	return p.What + " " + value
}

// judge compares the claim with what its experiment has measured.
func (c *Claim) judge(t *Table) Judged {
	j := Judged{Claim: c, Verdict: Agrees, Tolerance: c.tolerance()}
	var found []string
	for _, p := range c.Parts {
		v := p.Value(t)
		found = append(found, short(v))
		switch {
		case p.Agrees.has(v):
		case p.Shape != (Span{}) && p.Shape.has(v) && j.Verdict != Differs:
			j.Verdict = ShapeOnly
		default:
			j.Verdict = Differs
		}
	}
	j.Found = strings.Join(found, "; ")
	return j
}

// figure is the mean of one figure.
func figure(name string, keys ...string) func(*Table) float64 {
	return func(t *Table) float64 { return t.at(name, keys...).Mean }
}

// over is one figure over another.
func over(a, b func(*Table) float64) func(*Table) float64 {
	return func(t *Table) float64 { return a(t) / b(t) }
}

func constantly(v float64) func(*Table) float64 { return func(*Table) float64 { return v } }

// most is the largest of several.
func most(all ...func(*Table) float64) func(*Table) float64 {
	return func(t *Table) float64 {
		v := math.Inf(-1)
		for _, f := range all {
			v = max(v, f(t))
		}
		return v
	}
}

// InOrder returns claims by paper, kgate's last, and otherwise in their order.
func InOrder(claims []Judged) []Judged {
	return slices.SortedStableFunc(slices.Values(claims), func(a, b Judged) int { return strings.Compare(a.Paper, b.Paper) })
}

// Markdown writes claims as a table.
func Markdown(claims []Judged) string {
	var b strings.Builder
	b.WriteString("| paper, place | claim | experiment | agrees if | measured | verdict |\n|---|---|---|---|---|---|\n")
	for _, c := range claims {
		experiment := "`" + c.Experiment + "`"
		if c.Closed {
			experiment = "closed form"
		}
		fmt.Fprintf(&b, "| %s, %s | %s | %s | %s | %s | %s |\n", c.Paper, c.Place, c.Says, experiment, c.tolerance(), c.Found, c.Verdict)
	}
	return b.String()
}
