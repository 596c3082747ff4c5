package mutant

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Two changes of one file are both there, and the file itself is as before.
func TestOverlay(t *testing.T) {
	t.Chdir(writeModule(t))
	before, _ := os.ReadFile("main.go")
	overlay := Overlay(t, Change{"main.go", `"one"`, `"two"`}, Change{File: "main.go", Old: `+ "!"`})
	out, err := exec.CommandContext(t.Context(), "go", "run", "-overlay", overlay, ".").CombinedOutput()
	if err != nil || string(out) != "two" {
		t.Errorf("%s, %v", out, err)
	}
	if after, _ := os.ReadFile("main.go"); string(after) != string(before) {
		t.Error("the source has changed")
	}
}

// A suite fails for a defect that passes, that does not compile, or that another check finds.
func TestLook(t *testing.T) {
	t.Chdir(writeModule(t))
	for _, tt := range []struct {
		name string
		m    Mutant
		want string
	}{
		{"caught", Mutant{File: "main.go", Old: `"one"`, New: `"two"`, Caught: "it is two"}, ""},
		{"caught by something else", Mutant{File: "main.go", Old: `"one"`, New: `"three"`, Caught: "it is two"}, "not caught by"},
		{"not caught", Mutant{File: "main.go", Old: `+ "!"`, Caught: "."}, "not caught: ^TestName$"},
		{"does not compile", Mutant{File: "main.go", Old: `"one"`, New: `1`, Caught: "."}, "the mutant does not compile"},
		{"no such test", Mutant{File: "main.go", Old: `"one"`, New: `"two"`, Caught: ".", By: "^TestNobody$"}, "no test is called"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := (Suite{By: "^TestName$"}).verdict(t, tt.m, planted{}); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// One binary holds many defects, and only the chosen defect acts. A defect that cannot be switched has
// a binary of its own.
func TestSwitches(t *testing.T) {
	dir := writeModule(t)
	t.Chdir(dir)
	source := `package main

type box[T any] struct{ in []T }

func (b *box[T]) first(n int, more ...T) (got T) { return append(b.in, more...)[n] }

func pick[K comparable, V any](m map[K]V, k K) V {
	v := m[k]
	return v
}

func setName(to string) {
	name = to
}

const size = 1

func (box[T]) size(_ int) int { return size }
`
	test := `package main

import "testing"

func TestParts(t *testing.T) {
	setName("new")
	b := &box[string]{in: []string{"a", "b"}}
	t.Log(b.first(0, "c"), b.first(2, "c"), pick(map[string]int{"x": 7}, "x"), name, b.size(0))
	if b.first(0, "c") != "a" || b.first(2, "c") != "c" || pick(map[string]int{"x": 7}, "x") != 7 || name != "new" || b.size(0) != 1 {
		t.Fatal("wrong")
	}
}
`
	for name, text := range map[string]string{"parts.go": source, "parts_test.go": test} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := Suite{By: "^TestParts$", Mutants: []Mutant{
		{Name: "a method of a generic type", File: "parts.go", Old: "append(b.in, more...)[n]", New: "append(b.in, more...)[n/2]", Caught: "a b 7 new 1"},
		{Name: "another line of it", File: "parts.go", Old: "return append(b.in,", New: "b.in = b.in[1:]; return append(b.in,", Caught: "panic"},
		{Name: "a generic function", File: "parts.go", Old: "v := m[k]", New: "var v V; _ = m[k]", Caught: "a c 0 new 1"},
		{Name: "no result", File: "parts.go", Old: "name = to", New: "_ = to", Caught: "a c 7 one 1"},
		{Name: "a constant", File: "parts.go", Old: "const size = 1", New: "const size = 2", Caught: "a c 7 new 2"},
		{Name: "a receiver without a name", File: "parts.go", Old: "int { return size }", New: "int { return size + 2 }", Caught: "a c 7 new 3"},
	}}
	binary, err := s.build(t)
	if err != nil || len(binary) != 4 {
		t.Fatalf("%d are in one binary, %v", len(binary), err)
	}
	for i, m := range s.Mutants {
		if wrong := s.verdict(t, m, binary[i]); wrong != "" {
			t.Errorf("%s: %s", m.Name, wrong)
		}
	}
	none := planted{binary[0].path, ""}
	if got := s.verdict(t, s.Mutants[0], none); !strings.HasPrefix(got, "not caught: ") {
		t.Errorf("no defect is chosen: %s", got)
	}
	// With a defect that does not compile there is no common binary.
	s.Mutants = append(s.Mutants, Mutant{File: "parts.go", Old: "v := m[k]", New: "v := 7"})
	if binary, err = s.build(t); err != nil || len(binary) != 0 {
		t.Errorf("%d are in one binary with one that does not compile, %v", len(binary), err)
	}
}

// writeModule makes a small module to plant defects in.
func writeModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example\n\ngo 1.26\n",
		"main.go": `package main

import "os"

var name = "one"

func main() { os.Stdout.WriteString(name + "!") }
`,
		"main_test.go": `package main

import "testing"

func TestName(t *testing.T) {
	if name != "one" {
		t.Fatal("it is", name)
	}
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
