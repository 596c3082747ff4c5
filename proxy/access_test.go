package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/http1"
)

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// accessLines has a gateway write its access log, and returns its lines.
func accessLines(format AccessFormat) (lines chan []byte, change func(*Config)) {
	lines = make(chan []byte, 100)
	w := writerFunc(func(b []byte) (int, error) {
		lines <- slices.Clone(b)
		return len(b), nil
	})
	return lines, func(c *Config) {
		c.AccessLog, c.AccessWriter = format, w
		if format == AccessStructured {
			c.Logger = slog.New(slog.NewJSONHandler(w, nil))
		}
	}
}

// TestAccessLog: one line per request, without the query.
func TestAccessLog(t *testing.T) {
	lines, change := accessLines(AccessStructured)
	g := newGateway(t, 1, http.HandlerFunc(echoRequest), change)
	res := g.do(g.request("GET", "/x?token=secret", "Traceparent", exampleParent))
	_ = res.Body.Close()
	line := <-lines
	var got map[string]any
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(line), "secret") || got["path"] != "/x" || got["pool"] != "p" || got["outcome"] != "admitted" ||
		got["status"] != 200.0 || got["method"] != "GET" || got["upstream_status"] != 200.0 || got["msg"] != "request" ||
		got["trace_id"] != exampleParent[3:35] {
		t.Errorf("got %s", line)
	}
	for _, key := range []string{"remote", "client", "host", "proto", "upstream", "position", "wait_ms", "hold_ms", "bytes", "aborted"} {
		if _, ok := got[key]; !ok {
			t.Errorf("%s is missing in %s", key, line)
		}
	}
	res = g.do(g.request("GET", "/x"))
	_ = res.Body.Close()
	if line := <-lines; bytes.Contains(line, []byte("trace_id")) {
		t.Errorf("a request without a trace: %s", line)
	}
}

// The two old forms, as tools that read them take them apart.
var (
	commonLine   = regexp.MustCompile(`^(\S+) - - \[([^]]+)\] "([^" ]+) ([^" ]+) (HTTP/[0-9.]+)" (\d{3}) (\d+|-)\n$`)
	combinedLine = regexp.MustCompile(`^(\S+) - - \[([^]]+)\] "([^" ]+) ([^" ]+) (HTTP/[0-9.]+)" (\d{3}) (\d+|-) "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"\n$`)
)

func TestCommonAndCombined(t *testing.T) {
	for format, form := range map[AccessFormat]*regexp.Regexp{AccessCommon: commonLine, AccessCombined: combinedLine} {
		lines, change := accessLines(format)
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/none" {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			_, _ = io.WriteString(w, "hello")
		}), change)
		res := g.do(g.request("GET", "/some%20file?token=secret", "User-Agent", `Moz"illa\`, "Referer", "http://a/b?token=secret"))
		_ = res.Body.Close()
		line := string(<-lines)
		got := form.FindStringSubmatch(line)
		if got == nil {
			t.Fatalf("not in form: %q", line)
		}
		if at, err := time.Parse("02/Jan/2006:15:04:05 -0700", got[2]); err != nil || time.Since(at).Abs() > time.Minute {
			t.Errorf("time %q: %v", got[2], err)
		}
		want := []string{"127.0.0.1", got[2], "GET", "/some%20file", "HTTP/1.1", "200", "5"}
		if format == AccessCombined {
			want = append(want, "http://a/b", `Moz\"illa\\`)
		}
		if !slices.Equal(got[1:], want) {
			t.Errorf("got %q, want %q", got[1:], want)
		}
		res = g.do(g.request("GET", "/none"))
		_ = res.Body.Close()
		if line := string(<-lines); !strings.Contains(line, `" 204 -`) {
			t.Errorf("no body: %q", line)
		}
	}
}

// FuzzAccessLine: whatever a client sends, it is one line of the form, and of
// printable characters only.
func FuzzAccessLine(f *testing.F) {
	s := &snapshot{cfg: Config{AccessLog: AccessCombined}}
	f.Add("GET", "/a b\n1.2.3.4 - - [", "x\" 200 5\r\n", "\x1b[31mred\x9b")
	f.Add("", "", "", "")
	f.Fuzz(func(t *testing.T, method, path, referer, agent string) {
		if strings.ContainsAny(method, " \"") {
			t.Skip() // net/http does not let such a method in
		}
		r := &http1.Request{Method: method, URL: url.URL{Path: path}, Remote: "192.0.2.1:1234", Proto: "HTTP/1.1"}
		r.Fields.Add("Referer", referer)
		r.Fields.Add("User-Agent", agent)
		var line string
		s.cfg.AccessWriter = writerFunc(func(b []byte) (int, error) { line = string(b); return len(b), nil })
		(&exchange{ctx: exchangeContext{base: t.Context()}, visit: visit{snapshot: s, info: admission.RequestInfo{Remote: s.clientAddr(t.Context(), nil, r)}, rec: Record{Status: 200}}}).logAccess(r)
		body, ended := strings.CutSuffix(line, "\n")
		if !ended || strings.ContainsFunc(body, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Fatalf("%q", line)
		}
		if method != "" && path != "" && !combinedLine.MatchString(line) {
			t.Fatalf("not in form: %q", line)
		}
	})
}
