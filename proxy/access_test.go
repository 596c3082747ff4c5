package proxy

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
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
		got["trace_id"] != exampleParent[3:35] || got["position"] != 0.0 {
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
