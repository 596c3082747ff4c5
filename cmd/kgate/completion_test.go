package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCompletion(t *testing.T) {
	for _, tt := range []struct {
		words   []string
		offers  []string
		not     []string
		exactly bool
	}{
		{words: []string{""}, offers: []string{"serve", "status", "keygen"}, not: []string{"complete", "manual"}},
		{words: []string{"st"}, offers: []string{"status"}, exactly: true},
		{words: []string{"pool", ""}, offers: []string{"list", "set"}, exactly: true},
		{words: []string{"pool", "set", "--k"}, offers: []string{"--k"}, exactly: true},
		{words: []string{"pool", "set", "--"}, offers: []string{"--k", "--admin", "--help"}, not: []string{"--witness"}},
		{words: []string{"completion", "z"}, offers: []string{"zsh"}, exactly: true},
		{words: []string{"keygen", "--dir", "serve", "--pe"}, offers: []string{"--peer"}, exactly: true},
		{words: []string{"serve", "-c", ""}, exactly: true}, // file names are the shell's
		{words: []string{"no-such", "thing", ""}, offers: []string{"serve"}},
	} {
		var out bytes.Buffer
		if code := run(append([]string{"complete", "--"}, tt.words...), streams{&out, &out}); code != exitOK {
			t.Fatalf("%q: exit %d: %s", tt.words, code, &out)
		}
		got := strings.Fields(out.String())
		for _, want := range tt.offers {
			if !slices.Contains(got, want) {
				t.Errorf("%q: %s is not offered, but %v", tt.words, want, got)
			}
		}
		for _, not := range tt.not {
			if slices.Contains(got, not) {
				t.Errorf("%q: %s is offered", tt.words, not)
			}
		}
		if tt.exactly && len(got) != len(tt.offers) {
			t.Errorf("%q: %v is offered, want %v", tt.words, got, tt.offers)
		}
	}
}

// The shells that are there take the scripts.
func TestCompletionScripts(t *testing.T) {
	for shell, script := range completionScripts {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // bash is everywhere; a shell that is not needs no script
		}
		file := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), path, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
	}
}

// Every command that --help lists has a manual page with the same text.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if code := run([]string{"manual", dir}, streams{&out, &out}); code != exitOK {
		t.Fatalf("exit %d: %s", code, &out)
	}
	for name, words := range map[string][]string{
		"kgate.1":          {".SH COMMANDS", `kgate\-serve`},
		"kgate-serve.1":    {`kgate serve \-\-upstream`, `.SH "EXIT STATUS"`, `\-\-join`, "KGATE_JOIN"},
		"kgate-pool-set.1": {`\fB\-\-k\fR=\fIN\fR`},
		"kgate-keygen.1":   {".SH EXAMPLES"},
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		for _, w := range words {
			if !strings.Contains(string(data), w) {
				t.Errorf("%s does not say %q", name, w)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	if man, err := exec.LookPath("groff"); err == nil {
		for _, p := range pages {
			said, err := exec.CommandContext(t.Context(), man, "-man", "-Tutf8", "-ww", "-z", p).CombinedOutput()
			if err != nil || len(said) > 0 {
				t.Errorf("%s: %v: %s", filepath.Base(p), err, said)
			}
		}
	}
}
