package telemetry

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
)

func TestNewLogger(t *testing.T) {
	var b bytes.Buffer
	log, settings, err := NewLogger(&b, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	log = log.With(slog.String("gateway", "gw-1")).WithGroup("g")
	for _, step := range []struct{ level, format, want string }{
		{"info", "json", `"msg":"pool added","gateway":"gw-1","g":{"pool":"a"}}`},
		{"info", "text", `msg="pool added" gateway=gw-1 g.pool=a`},
		{"error", "text", ""},
		{"debug", "json", `"msg":"not yet"`},
	} {
		b.Reset()
		if err := settings.Set(step.level, step.format); err != nil {
			t.Fatal(err)
		}
		log.Debug("not yet")
		log.Info("pool added", slog.String("pool", "a"))
		if got := b.String(); !strings.Contains(got, step.want) || (got == "") != (step.want == "") {
			t.Errorf("%v: %s", step, got)
		}
	}
	if err := settings.Set("warn", "xml"); !errors.Is(err, errLogOption) || !log.Enabled(t.Context(), slog.LevelDebug) {
		t.Errorf("a refused setting: %v, or it changed the level", err)
	}
	for _, bad := range [][2]string{{"INFO", "json"}, {"", "json"}, {"info", "xml"}} {
		if _, _, err := NewLogger(io.Discard, bad[0], bad[1]); !errors.Is(err, errLogOption) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
