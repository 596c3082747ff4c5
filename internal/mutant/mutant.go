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
	// Caught is a regular expression for part of what the check says that has to
	// find it.
	Caught string
	// By is the test that has to, as the go command's -run takes it; empty: the
	// suite's.
	By string
	// Args are further arguments for it, after the suite's.
	Args []string
}

// Suite is a table of defects and how to look for them.
type Suite struct {
	// Package that is tested, relative to the directory of the test; empty: there.
	Package string
	// By is the test that has to find what names no other.
	By string
	// Args are further arguments for the tests, as a test binary takes them.
	Args []string
	// Note is a regular expression for what else of the failing run belongs in the
	// log, as the command that repeats it.
	Note    string
	Mutants []Mutant
}

// Run plants the defects and looks for one after the other, as subtests, and logs
// what caught each. It compiles for seconds: not with -short.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles packages again, with defects; not with -short")
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

// planted is a binary with a defect, and how to choose it.
type planted struct{ path, choice string }

// build compiles the package with those defects that one binary can hold. What it cannot hold, or
// all if it does not compile, is left to be
// built on its own, which is as good and takes longer.
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

// compile builds what the defects are planted in.
func (s Suite) compile(t *testing.T, overlay, path string) ([]byte, error) {
	t.Helper()
	return exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", path, cmp.Or(s.Package, ".")).CombinedOutput()
}

// verdict runs the check that has to find m and returns what is wrong with it.
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
