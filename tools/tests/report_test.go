package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What failed is at the end, each with what it said, and nothing else is.
func TestSummary(t *testing.T) {
	const events = `{"Action":"output","Package":"a","Test":"TestGood","Output":"    good_test.go:1: all is well\n"}
{"Action":"pass","Package":"a","Test":"TestGood"}
{"Action":"pass","Package":"a","Elapsed":1.5}
{"Action":"output","Package":"b","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"b","Test":"TestBad/first","Output":"    bad_test.go:7: k is 3,\n"}
{"Action":"output","Package":"b","Test":"TestBad/first","Output":"        want 2\n"}
{"Action":"output","Package":"b","Test":"TestBad/first","Output":"    gateway.go:9: log of gw-1:\n"}
{"Action":"output","Package":"b","Test":"TestBad/first","Output":"        {\"msg\":\"long\"}\n"}
{"Action":"output","Package":"b","Test":"TestBad/first","Output":"    --- FAIL: TestBad/first (0.10s)\n"}
{"Action":"fail","Package":"b","Test":"TestBad/first","Elapsed":0.1}
{"Action":"output","Package":"b","Test":"TestBad","Output":"--- FAIL: TestBad (0.10s)\n"}
{"Action":"fail","Package":"b","Test":"TestBad","Elapsed":0.1}
{"Action":"output","Package":"b","Output":"FAIL\n"}
{"Action":"fail","Package":"b","Elapsed":0.2}
{"Action":"output","Package":"c","Test":"TestHangs","Output":"=== RUN   TestHangs\n"}
{"Action":"output","Package":"c","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"c","Elapsed":9}
{"Action":"output","Package":"d","Output":"found unexpected goroutines\n"}
{"Action":"fail","Package":"d","Elapsed":1}
{"Action":"build-output","ImportPath":"e","Output":"e.go:1:1: no such word\n"}
{"Action":"build-fail","ImportPath":"e"}
{"Action":"skip","Package":"a","Test":"TestLong"}
main.go:3: a linter says so
`
	file := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(file, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	log := filepath.Join(t.TempDir(), "log")
	ok, err := run(&out, log, []string{"cat " + file + "; exit 3", "true", "sleep 0.1", "then", "echo late; false"})
	if err != nil || ok {
		t.Errorf("%v, %v", ok, err)
	}
	_, got, _ := strings.Cut(out.String(), "1 tests were skipped")
	want := `: a TestLong

6 failed, 1 packages are ok:

--- FAIL: b TestBad/first (0.1 s)
    bad_test.go:7: k is 3,
        want 2
    gateway.go:9: log of gw-1:

--- FAIL: c TestHangs (has not ended)
    panic: test timed out

--- FAIL: d (1.0 s)
    found unexpected goroutines

--- FAIL: build of e
    e.go:1:1: no such word

--- FAIL: exit status 3: cat FILE; exit 3
    main.go:3: a linter says so

--- FAIL: exit status 1: echo late; false
    late
`
	got = strings.ReplaceAll(got, file, "FILE")
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if all, err := os.ReadFile(log); err != nil || !strings.Contains(string(all), "all is well") {
		t.Errorf("%s, %v", all, err)
	}
	if strings.Contains(out.String(), "all is well") {
		t.Error("a test that passed is heard")
	}

	out.Reset()
	if ok, err := run(&out, "", []string{"head -3 " + file}); err != nil || !ok || !strings.HasSuffix(out.String(), "\nok: 1 packages\n") {
		t.Errorf("%v, %v, %s", ok, err, &out)
	}
}
