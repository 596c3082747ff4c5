package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/http1"
)

// TestAccessJSONIsWhatSlogWrites: the two ways to write a structured line say the same.
func TestAccessJSONIsWhatSlogWrites(t *testing.T) {
	for _, path := range []string{"/plain", "/quo\"te\\", "/umlaut-\u00fc-\u2028", "/ctl-\x01\x7f\n", "/bad-\xff\xfe", "/c1-\u009b\u0085"} {
		var out strings.Builder
		log := slog.New(slog.NewJSONHandler(&out, nil)).With(slog.String("gateway", "gw-1"))
		var line string
		s := &snapshot{cfg: Config{Logger: log, Gateway: "gw-1", AccessWriter: writerFunc(func(b []byte) (int, error) { line = string(b); return len(b), nil })}}
		r := &http1.Request{Method: "GET", URL: url.URL{Path: path}, Host: "host\t.example", Proto: "HTTP/1.1"}
		ex := &exchange{ctx: exchangeContext{base: context.Background()}, visit: visit{snapshot: s, failure: errors.New("broken: " + path), rec: Record{
			Pool: "p", Outcome: admission.Timeout.Outcome(), Status: 503, Upstream: "10.0.0.1:80", Wait: 1234567 * time.Microsecond,
			Hold: time.Nanosecond, Bytes: 7, Aborted: true, TraceID: "0af7651916cd43dd8448eb211c80319c", Grant: admission.GrantInfo{Position: 3},
		}}}
		s.cfg.AccessLog = AccessStructured
		ex.logAccess(r)
		s.cfg.AccessLog = AccessJSON
		ex.logAccess(r)
		var want, got map[string]any
		if err := json.Unmarshal([]byte(out.String()), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil || strings.Count(line, "\n") != 1 {
			t.Fatalf("%v: %s", err, line)
		}
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' }) {
			t.Errorf("what controls a terminal is in %q", line)
		}
		delete(want, "time")
		delete(got, "time")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
}

func BenchmarkAccessLog(b *testing.B) {
	r := &http1.Request{Method: "GET", URL: url.URL{Path: "/files/large.iso"}, Proto: "HTTP/1.1"}
	ex := &exchange{ctx: exchangeContext{base: context.Background()}, visit: visit{rec: Record{Pool: "p", Outcome: admission.OutcomeAdmitted, Status: 200, Upstream: "10.0.0.1:80", UpstreamStatus: 200, Wait: time.Millisecond, Hold: time.Second}}}
	b.Run("slog", func(b *testing.B) {
		ex.snapshot = &snapshot{cfg: Config{AccessLog: AccessStructured, Logger: slog.New(slog.NewJSONHandler(nowhere{}, nil))}}
		b.ReportAllocs()
		for b.Loop() {
			ex.logAccess(r)
		}
	})
	b.Run("json", func(b *testing.B) {
		ex.snapshot = &snapshot{cfg: Config{AccessLog: AccessJSON, AccessWriter: nowhere{}, Logger: slog.New(slog.DiscardHandler)}}
		b.ReportAllocs()
		for b.Loop() {
			ex.logAccess(r)
		}
	})
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
