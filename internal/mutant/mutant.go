package mutant

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	// Args are further arguments for the tests.
	Args []string
	// Program is the directory of a main package, relative to the directory of the
	// test. If it is set the defects are planted in it and not in the tests, which
	// find its path in the environment variable Variable. They run one after the
	// other.
	Program, Variable string
	// Note is a regular expression for what else of the failing run belongs in the
	// log, as the command that repeats it.
	Note    string
	Mutants []Mutant
}

// Run plants one defect after the other, as subtests, and logs what caught each.
// Each one is compiled on its own, which takes a second or two: not with -short.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles a package once per mutant; not with -short")
	}
	for _, m := range s.Mutants {
		t.Run(strings.ReplaceAll(m.Name, " ", "_"), func(t *testing.T) {
			if s.Program == "" {
				t.Parallel()
			}
			if wrong := s.verdict(t, m); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// verdict plants m and returns what is wrong with the check that has to find it.
func (s Suite) verdict(t *testing.T, m Mutant) string {
	t.Helper()
	by := cmp.Or(m.By, s.By)
	overlay := []string{"-overlay", Overlay(t, Change{m.File, m.Old, m.New})}
	env := os.Environ()
	if s.Program != "" {
		path := filepath.Join(t.TempDir(), "program")
		build := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"build", "-C", s.Program}, overlay, []string{"-o", path, "."})...)
		build.Env = append(env, "GOWORK=off")
		if out, err := build.CombinedOutput(); err != nil {
			return "the mutant does not compile:\n" + string(out)
		}
		overlay, env = nil, append(env, s.Variable+"="+path)
	}
	args := slices.Concat([]string{"test"}, overlay, []string{"-vet=off", "-count=1", "-run", by, cmp.Or(s.Package, ".")}, s.Args, m.Args)
	run := exec.CommandContext(t.Context(), "go", args...)
	run.Env = env
	output, err := run.CombinedOutput()
	out := string(output)
	found := regexp.MustCompile(m.Caught).FindString(out)
	switch {
	case strings.Contains(out, "[build failed]"):
		return "the mutant does not compile:\n" + out
	case strings.Contains(out, "[no tests to run]"):
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
