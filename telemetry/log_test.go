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
	for format, want := range map[string]string{
		"json": `"msg":"pool added","pool":"a"}`,
		"text": `msg="pool added" pool=a`,
	} {
		var b bytes.Buffer
		log, level, err := NewLogger(&b, "info", format)
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("not yet")
		log.Info("pool added", slog.String("pool", "a"))
		level.Set(slog.LevelError)
		log.Warn("no more")
		if got := b.String(); !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: %s", format, got)
		}
	}
	for _, bad := range [][2]string{{"INFO", "json"}, {"", "json"}, {"info", "xml"}} {
		if _, _, err := NewLogger(io.Discard, bad[0], bad[1]); !errors.Is(err, ErrLogOption) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
