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

	"github.com/kgate/kgate/internal/stall"
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
	// Program is the directory of a main package, relative to the directory of the
	// test. If it is set the defects are planted in it and not in the tests, which
	// find its path in the environment variable Variable. They run one after the
	// other.
	Program, Variable string
	// Soak is an environment variable without which Run does not look for the defects, because
	// that takes minutes, but sees that they can be planted. The tests run without it.
	Soak string
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
	if s.Soak != "" {
		if os.Getenv(s.Soak) == "" {
			s.check(t)
			return
		}
		t.Setenv(s.Soak, "")
	}
	binary, err := s.build(t)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range s.Mutants {
		t.Run(strings.ReplaceAll(m.Name, " ", "_"), func(t *testing.T) {
			if s.Program == "" {
				t.Parallel()
			}
			if wrong := s.verdict(t, m, binary[i]); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// check sees that each defect can be planted.
func (s Suite) check(t *testing.T) {
	t.Helper()
	for _, m := range s.Mutants {
		one := switches{make(map[string]*switchedFile)}
		err := one.add(1, Change{m.File, m.Old, m.New})
		if err != nil && !errors.Is(err, errNoSwitch) {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// planted is a binary with a defect, and how to choose it.
type planted struct{ path, choice string }

// build compiles the package, or the program, with those defects that one binary
// can hold. What it cannot hold, or all if it does not compile, is left to be
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
	if s.Program != "" {
		build := exec.CommandContext(t.Context(), "go", "build", "-C", s.Program, "-overlay", overlay, "-o", path, ".")
		build.Env = append(os.Environ(), "GOWORK=off")
		return build.CombinedOutput()
	}
	return exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", path, cmp.Or(s.Package, ".")).CombinedOutput()
}

// tries is how often a check may look for a defect. Some show themselves in most runs and
// not in all: they need one order of a map's entries, or one of two events first. Whether
// a check is content with what has no defect is for the tests themselves, which have one try.
const tries = 3

// verdict runs the check that has to find m and returns what is wrong with it.
func (s Suite) verdict(t *testing.T, m Mutant, p planted) string {
	t.Helper()
	if p.path == "" {
		p.path = filepath.Join(t.TempDir(), "one")
		if out, err := s.compile(t, Overlay(t, Change{m.File, m.Old, m.New}), p.path); err != nil {
			return "the mutant does not compile:\n" + string(out)
		}
	}
	var wrong string
	for n := range tries {
		if wrong = s.look(t, m, p); wrong == "" {
			break
		}
		first, _, _ := strings.Cut(wrong, "\n")
		t.Logf("run %d of %d: %s", n+1, tries, first)
	}
	return wrong
}

// look runs the check once.
func (s Suite) look(t *testing.T, m Mutant, p planted) string {
	t.Helper()
	by := cmp.Or(m.By, s.By)
	args := slices.Concat([]string{"-test.paniconexit0", "-test.failfast", "-test.timeout=10m", "-test.run=" + by}, s.Args, m.Args)
	run := exec.CommandContext(t.Context(), p.path, args...)
	run.Dir, run.Env = s.Package, append(os.Environ(), stall.Strict+"=1", chosen+"="+p.choice)
	if s.Program != "" {
		run = exec.CommandContext(t.Context(), "go", slices.Concat([]string{"test", "-vet=off", "-count=1", "-run", by, cmp.Or(s.Package, ".")}, s.Args, m.Args)...)
		run.Env = append(os.Environ(), stall.Strict+"=1", s.Variable+"="+p.path, chosen+"="+p.choice)
	}
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
