package experiment

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The pages with claims, and whose.
var claimPages = map[string]func(paper string) bool{
	"../../docs/lab.md":   func(paper string) bool { return paper != ours },
	"../../docs/field.md": func(paper string) bool { return paper == ours },
}

const claimsBegin, claimsEnd = "<!-- claims: begin -->\n", "<!-- claims: end -->"

// quick are the experiments whose claims every run of the tests measures. KGATE_SOAK=1 measures all.
var quick = []string{"000-fig4", "002-6.2.1c", "001-eq", "003-fig4", "004-fig6", "004-fig7", "004-tab2"}

// The pages have the table that kgate-lab claims prints: claims, tolerances, figures and verdicts.
func TestClaimsOnPages(t *testing.T) {
	soak := os.Getenv("KGATE_SOAK") != ""
	runner := NewRunner(Options{})
	var claims []Judged
	for _, e := range All() {
		switch measured := soak || *rewrite || !testing.Short() && slices.Contains(quick, e.Name); {
		case len(e.Claims) == 0:
		case measured:
			r, err := runner.Run(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			claims = append(claims, r.Claims...)
		default:
			for _, c := range e.Claims {
				claims = append(claims, Judged{Claim: c})
			}
		}
	}
	for page, has := range claimPages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, found := strings.Cut(string(text), claimsBegin)
		table, after, ended := strings.Cut(rest, claimsEnd)
		if !found || !ended {
			t.Fatalf("%s has no table of claims", page)
		}
		want := Markdown(slices.DeleteFunc(InOrder(claims), func(c Judged) bool { return !has(c.Paper) }))
		if *rewrite {
			if err := os.WriteFile(page, []byte(before+claimsBegin+want+claimsEnd+after), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		compareRows(t, page, strings.Split(table, "\n"), strings.Split(want, "\n"))
	}
}

// compareRows leaves figure and verdict out where nothing was measured, and where products are rounded otherwise.
func compareRows(t *testing.T, page string, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s has %d lines of claims, kgate-lab claims prints %d: go test ./lab/experiment -run ClaimsOnPages -rewrite", page, len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		if strings.HasSuffix(w, " |  |  |") || runtime.GOARCH != "amd64" {
			cells := strings.Split(g, " | ")
			g = strings.Join(cells[:min(4, len(cells))], " | ")
			w = strings.Join(strings.Split(w, " | ")[:min(4, len(cells))], " | ")
		}
		if g != w {
			t.Errorf("%s:\n%s\nkgate-lab claims prints\n%s", page, g, w)
		}
	}
}

func TestJudge(t *testing.T) {
	value := func(v float64) func(*Table) float64 { return constantly(v) }
	for _, c := range []struct {
		parts []Part
		want  Verdict
		found string
	}{
		{[]Part{{Value: value(355), Agrees: around(350, .05)}}, Agrees, "355"},
		{[]Part{{Value: value(16.45), Agrees: atMost(15), Shape: atMost(30)}}, ShapeOnly, "16.4"},
		{[]Part{{Value: value(.0333), Agrees: atLeast(1), Shape: atLeast(.5)}}, Differs, ".0333"},
		{[]Part{{Value: value(1), Agrees: atMost(1)}, {Value: value(20), Agrees: atMost(15), Shape: atMost(30)}}, ShapeOnly, "1; 20"},
		{[]Part{{Value: value(99), Agrees: atMost(1)}, {Value: value(20), Agrees: atMost(15), Shape: atMost(30)}}, Differs, "99; 20"},
	} {
		if j := (&Claim{Parts: c.parts}).judge(nil); j.Verdict != c.want || j.Found != c.found {
			t.Errorf("%v: %s, %s", c.parts, j.Verdict, j.Found)
		}
	}
	c := Claim{Parts: []Part{{What: "mean", Agrees: between(1, 2.5)}, {Agrees: atMost(.1), Shape: atMost(.25)}}}
	if got := c.tolerance(); got != "mean 1-2.5; ≤.1 (shape ≤.25)" {
		t.Error(got)
	}
}
