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

// A suite fails for what passes, for what does not compile, and for what another check finds.
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
			if got := (Suite{By: "^TestName$"}).verdict(t, tt.m); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
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
		write(t, filepath.Join(dir, name), []byte(text))
	}
	return dir
}
