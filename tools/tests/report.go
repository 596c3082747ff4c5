package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is what `go test -json` says: see `go doc test2json` and `go help buildjson`.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of a build
	Elapsed                       float64
}

// key is a test of a package. The package itself has no Test.
type key struct{ pkg, test string }

// failure is what failed, and the lines of what it said that tell why.
type failure struct {
	title string
	said  []string
}

// report collects what the commands say. Its methods are called one at a time.
type report struct {
	w io.Writer
	// said is what each test that has not ended has said, and each build.
	said     map[key][]string
	failures []failure
	// inside counts what failed in a package, and in a test, by title.
	inside  map[key]int
	passed  int // packages
	skipped []string
	other   map[string][]string // the last lines of each command that are no events
}

func newReport(w io.Writer) *report {
	return &report{w: w, said: make(map[key][]string), inside: make(map[key]int), other: make(map[string][]string)}
}

// Other lines of a command, and lines of a failure in the summary, at most.
const mostOther, mostSaid = 20, 20

// line takes in one line of a command.
func (r *report) line(command string, line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		fmt.Fprintf(r.w, "%s\n", line)
		lines := append(r.other[command], string(line))
		r.other[command] = lines[max(0, len(lines)-mostOther):]
		return
	}
	at := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		at = key{e.ImportPath, ""}
		r.said[at] = append(r.said[at], strings.TrimSuffix(e.Output, "\n"))
	case "build-fail":
		r.fail(key{e.ImportPath, ""}, "build of "+e.ImportPath)
	case "output":
		r.said[at] = append(r.said[at], strings.TrimSuffix(e.Output, "\n"))
	case "pass", "skip", "fail":
		r.end(at, e)
	}
}

// end takes in that a test or a package has ended.
func (r *report) end(at key, e event) {
	title := fmt.Sprintf("%s %s (%.1f s)", at.pkg, at.test, e.Elapsed)
	if at.test == "" {
		title = fmt.Sprintf("%s (%.1f s)", at.pkg, e.Elapsed)
	}
	switch {
	case e.Action == "fail" && at.test == "":
		r.failPackage(at, title)
	case e.Action == "fail":
		if r.inside[at] == 0 || len(messages(r.said[at])) > 0 {
			r.fail(at, title)
		}
		for parent := at.test; parent != ""; { // what is inside says why these fail
			parent = parent[:max(0, strings.LastIndexByte(parent, '/'))]
			r.inside[key{at.pkg, parent}]++
		}
	case e.Action == "skip" && at.test != "":
		r.skipped = append(r.skipped, at.pkg+" "+at.test)
	case at.test == "" && e.Action == "pass":
		r.passed++
		cached := ""
		if slices.ContainsFunc(r.said[at], func(s string) bool { return strings.Contains(s, "(cached)") }) {
			cached = ", cached"
		}
		fmt.Fprintf(r.w, "ok    %s (%.1f s%s)\n", at.pkg, e.Elapsed, cached)
	}
	delete(r.said, at)
}

// failPackage takes in that a package failed. If none of its tests did, its own output
// says why: a panic, a time-out, goroutines that are left. Tests that have not ended say more.
func (r *report) failPackage(at key, title string) {
	open := false
	for k := range r.said {
		if k.pkg == at.pkg && k.test != "" {
			open = true
			r.fail(k, k.pkg+" "+k.test+" (has not ended)")
			delete(r.said, k)
		}
	}
	if r.inside[at] == 0 && !open {
		r.fail(at, title)
	}
	fmt.Fprintf(r.w, "FAIL  %s\n", title)
}

// fail notes a failure and prints it.
func (r *report) fail(at key, title string) {
	f := failure{title, messages(r.said[at])}
	r.failures = append(r.failures, f)
	f.print(r.w)
}

func (f failure) print(w io.Writer) {
	fmt.Fprintf(w, "--- FAIL: %s\n", f.title)
	for _, line := range f.said {
		fmt.Fprintf(w, "    %.300s\n", strings.TrimPrefix(line, "    "))
	}
}

// ended takes in how a command ended.
func (r *report) ended(command string, after time.Duration, err error) {
	short := command[:min(len(command), 70)]
	fmt.Fprintf(r.w, "ended after %v: %s\n", after.Round(time.Second), short)
	if err == nil {
		return
	}
	title := fmt.Sprintf("%v: %s", err, short)
	if len(r.failures) == 0 || len(r.other[command]) > 0 {
		r.failures = append(r.failures, failure{title, messages(r.other[command])})
	}
}

// summary prints what failed, and reports whether nothing did.
func (r *report) summary() (ok bool) {
	if len(r.skipped) > 0 {
		fmt.Fprintf(r.w, "\n%d tests were skipped: %s\n", len(r.skipped), strings.Join(r.skipped, ", "))
	}
	if len(r.failures) == 0 {
		fmt.Fprintf(r.w, "\nok: %d packages\n", r.passed)
		return true
	}
	fmt.Fprintf(r.w, "\n%d failed, %d packages are ok:\n", len(r.failures), r.passed)
	for _, f := range r.failures {
		fmt.Fprintln(r.w)
		f.print(r.w)
	}
	return false
}

var (
	// position begins what a test says with t.Error or t.Log.
	position = regexp.MustCompile(`^ *[\w-]+\.go:\d+: `)
	// crash begins what the runtime says.
	crash = regexp.MustCompile(`^(panic: |fatal error: |WARNING: DATA RACE)`)
	// frame is what the go command and package testing add, and logs of gateways.
	frame = regexp.MustCompile(`^(=== |\s*--- |FAIL\b|ok\b|PASS\b|exit status|coverage:|\s*\{")`)
)

// messages returns what the runtime said, or the first and the last lines of what a test
// said itself; if that is nothing, of all.
func messages(said []string) []string {
	if i := slices.IndexFunc(said, crash.MatchString); i >= 0 {
		return said[i:min(len(said), i+mostSaid)]
	}
	var own, all []string
	inside := false
	for _, line := range said {
		switch {
		case strings.TrimSpace(line) == "" || frame.MatchString(line):
			continue
		case position.MatchString(line):
			inside = true
		case !strings.HasPrefix(line, "        "):
			inside = false
		}
		all = append(all, line)
		if inside {
			own = append(own, line)
		}
	}
	if len(own) == 0 {
		own = all
	}
	if over := len(own) - mostSaid; over > 0 {
		own = slices.Replace(own, 3, 3+over+1, "    ...")
	}
	return own
}
