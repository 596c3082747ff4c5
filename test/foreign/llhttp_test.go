package foreign

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kgate/kgate/proxy/http1"
)

// parserCase is one of llhttp's.
type parserCase struct {
	name    string
	sent    []byte
	refused bool
	whole   int // messages that it takes before that
}

var (
	parserCases = regexp.MustCompile("(?s)###* ([^\n]+)\n+(?:[^#`]*?)<!-- meta=(\\{[^\n]*?\\}) -->\\s*```http\n(.*?)```\\s*```log\n(.*?)```")
	byHex       = regexp.MustCompile(`\\x([0-9a-fA-F]{2})`)
)

// readCases returns llhttp's cases for its strict mode: of kind "request" or "response".
func readCases(t *testing.T, dir, kind string) (cases []parserCase) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "test", kind, "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatal("no cases: ", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range parserCases.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(m[2], `"type": "`+kind+`"`) || strings.Contains(m[4], "pause") {
				continue // lenient, or about llhttp's own interface
			}
			cases = append(cases, parserCase{
				name:    strings.TrimSuffix(filepath.Base(file), ".md") + ": " + m[1],
				sent:    bytesOf(m[3]),
				refused: strings.Contains(m[4], "error code="),
				whole:   strings.Count(m[4], "message complete"),
			})
		}
	}
	return cases
}

// bytesOf returns the bytes that the text of a case stands for.
func bytesOf(text string) []byte {
	text = strings.TrimSuffix(text, "\n")
	text = strings.ReplaceAll(text, "\\\n", "")
	text = strings.ReplaceAll(text, "\n", "\r\n")
	text = strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\t`, "\t", `\f`, "\f").Replace(text)
	return []byte(byHex.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.ParseUint(s[2:], 16, 8)
		return string([]byte{byte(n)})
	}))
}

// TestLLHTTP: of what llhttp refuses, the gateway takes no more than a few.
func TestLLHTTP(t *testing.T) {
	const most = 4
	cases := readCases(t, fetch(t, "KGATE_LLHTTP", "https://github.com/nodejs/llhttp"), "request")
	all := servers(t)
	for _, s := range all {
		results := make([]answer, len(cases))
		inParallel(len(cases), func(i int) { results[i] = send(t, s.addr, cases[i].sent) })
		refused, taken, strict := 0, 0, 0
		for i, c := range cases {
			good := 0
			for _, status := range results[i].statuses {
				if status/100 == 2 {
					good++
				}
			}
			switch {
			case c.refused:
				refused++
				if good > c.whole {
					taken++
					t.Logf("%s takes %s: %.120q", s.name, c.name, c.sent)
				}
			case good < c.whole:
				strict++
			}
		}
		t.Logf("%s: of %d that llhttp refuses %d are taken; of %d that it takes %d are refused (many have no Host)", s.name, refused, taken, len(cases)-refused, strict)
		if s.name == "kgate" && taken > most {
			t.Errorf("%d are taken", taken)
		}
	}
}

// TestLLHTTPInHTTP1 does the same for package http1 alone, in both directions.
func TestLLHTTPInHTTP1(t *testing.T) {
	dir := fetch(t, "KGATE_LLHTTP", "https://github.com/nodejs/llhttp")
	for _, kind := range []string{"request", "response"} {
		cases := readCases(t, dir, kind)
		refused, taken := 0, 0
		for _, c := range cases {
			if !c.refused {
				continue
			}
			refused++
			if c.whole == 0 && alone(c.sent, kind).status() == http.StatusOK {
				taken++
				t.Logf("taken: %s: %.120q", c.name, c.sent)
			}
		}
		t.Logf("%ss: of %d that llhttp refuses %d are taken", kind, refused, taken)
		if taken > 4 {
			t.Errorf("%ss: %d are taken", kind, taken)
		}
	}
}

// alone returns what a server would answer that only package http1 judges by: 200 to what it reads to
// its end.
func alone(sent []byte, kind string) answer {
	var h http1.Head
	var f http1.Framing
	limits := http1.Limits{Bytes: 16 << 10, Fields: 200}
	read, framing := h.Request, h.RequestFraming
	if kind == "response" {
		read, framing = h.Response, func() (http1.Framing, error) { return h.ResponseFraming(http.MethodGet) }
	}
	n, err := read(sent, limits)
	if n > 0 {
		f, err = framing()
	}
	if n > 0 && err == nil {
		in := http1.NewInput(bytes.NewReader(sent[n:]), limits.Bytes)
		var b http1.Body
		b.Reset(in, f, limits)
		if _, err = io.Copy(io.Discard, &b); err == nil {
			return answer{[]int{http.StatusOK}, !f.Persists}
		}
	}
	var rule http1.Rule
	if errors.As(err, &rule) {
		return answer{[]int{rule.Status()}, true}
	}
	return answer{} // more is to come
}

// inParallel calls f with 0 to n-1, some at a time.
func inParallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, 16)
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			f(i)
		})
	}
	wg.Wait()
}
