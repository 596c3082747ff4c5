package mutant

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Mutant is one defect.
type Mutant struct {
	// Name says what is wrong, in words.
	Name string
	// File, Old and New are as in [Change].
	File, Old, New string
	// Caught is a regular expression for a part of the failing check's output.
	Caught string
	// By is the test that has to find the defect, as for the go command's -run; empty: the
	// suite's.
	By string
	// Args are further arguments for the test, after the suite's.
	Args []string
}

// Suite is a table of defects and the tests that have to find them.
type Suite struct {
	// Package that is tested, relative to the directory of the test; empty: there.
	Package string
	// By is the test for mutants that name none.
	By string
	// Args are further arguments for the tests, as a test binary takes them.
	Args []string
	// Note is a regular expression for another part of the failing run's output to log, such as
	// the command that repeats the run.
	Note    string
	Mutants []Mutant
}

// Run plants the defects, tests for each in a subtest, and logs the output that caught it. With
// -short it only looks whether each can be planted still, since all else takes minutes.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	if testing.Short() {
		for _, m := range s.Mutants {
			Overlay(t, Change{m.File, m.Old, m.New})
		}
		return
	}
	binary, err := s.build(t)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range s.Mutants {
		t.Run(strings.ReplaceAll(m.Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if wrong := s.verdict(t, m, binary[i]); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// planted is a binary with a defect, and the value of the variable that chooses the defect.
type planted struct{ path, choice string }

// build compiles the package with the defects that one binary can hold. The other defects, or all if
// that binary does not compile, are built one by one later, which takes longer.
func (s Suite) build(t *testing.T) (map[int]planted, error) {
	t.Helper()
	dir := t.TempDir()
	all, in := switches{make(map[string]*switchedFile)}, make(map[int]planted)
	path := filepath.Join(dir, "all")
	for i, m := range s.Mutants {
		switch err := all.add(i+1, Change{m.File, m.Old, m.New}); {
		case err == nil:
			in[i] = planted{path, strconv.Itoa(i + 1)}
		case !errors.Is(err, errNoSwitch):
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	overlay, err := all.overlay(dir)
	if err != nil || len(in) < 2 {
		return nil, err
	}
	if out, err := s.compile(t, overlay, path); err != nil {
		t.Logf("the defects do not compile together:\n%s", out)
		return nil, nil
	}
	t.Logf("%d of %d defects are in one binary", len(in), len(s.Mutants))
	return in, nil
}

// compile builds the test binary of the package with the overlay.
func (s Suite) compile(t *testing.T, overlay, path string) ([]byte, error) {
	t.Helper()
	return exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", path, cmp.Or(s.Package, ".")).CombinedOutput()
}

// verdict runs the check that has to find m, and returns why the check is not good enough; "" if it is.
func (s Suite) verdict(t *testing.T, m Mutant, p planted) string {
	t.Helper()
	if p.path == "" {
		p.path = filepath.Join(t.TempDir(), "one")
		if out, err := s.compile(t, Overlay(t, Change{m.File, m.Old, m.New}), p.path); err != nil {
			return "the mutant does not compile:\n" + string(out)
		}
	}
	by := cmp.Or(m.By, s.By)
	args := slices.Concat([]string{"-test.paniconexit0", "-test.failfast", "-test.timeout=10m", "-test.run=" + by}, s.Args, m.Args)
	run := exec.CommandContext(t.Context(), p.path, args...)
	run.Dir, run.Env = s.Package, append(os.Environ(), chosen+"="+p.choice)
	output, err := run.CombinedOutput()
	out := string(output)
	found := regexp.MustCompile(m.Caught).FindString(out)
	switch {
	case strings.Contains(out, "no tests to run"):
		return "no test is called " + by
	case err == nil:
		return "not caught: " + by + " is content"
	case found == "":
		return fmt.Sprintf("not caught by %q:\n%.5000s", m.Caught, out)
	}
	t.Logf("caught by %q", found)
	if s.Note != "" {
		t.Log(regexp.MustCompile(s.Note).FindString(out))
	}
	return ""
}
