package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
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

func TestLimitedLogger(t *testing.T) {
	var b bytes.Buffer
	log, _, err := NewLogger(&b, "info", "text")
	if err != nil {
		t.Fatal(err)
	}
	c := newClock()
	l := NewLimitedLogger(log, c.Now)
	lines := func() string {
		defer b.Reset()
		return b.String()
	}
	for range 10 {
		l.Warn(t.Context(), "bad_frame", "frame refused", slog.String("peer", "10.0.0.1"))
	}
	if got := lines(); strings.Count(got, "\n") != 1 || strings.Contains(got, "suppressed") || !strings.Contains(got, `msg="frame refused" cause=bad_frame peer=10.0.0.1`) {
		t.Errorf("first: %s", got)
	}
	l.Warn(t.Context(), "plaintext", "frame refused")
	if got := lines(); strings.Count(got, "\n") != 1 {
		t.Errorf("another cause: %s", got)
	}
	c.Advance(time.Minute - 1)
	l.Warn(t.Context(), "bad_frame", "frame refused")
	if got := lines(); got != "" {
		t.Errorf("too early: %s", got)
	}
	c.Advance(1)
	l.Warn(t.Context(), "bad_frame", "frame refused")
	if got := lines(); !strings.Contains(got, "suppressed=10") {
		t.Errorf("after a minute: %s", got)
	}
	c.Advance(time.Minute)
	l.Warn(t.Context(), "bad_frame", "frame refused")
	if got := lines(); !strings.Contains(got, "frame refused") || strings.Contains(got, "suppressed") {
		t.Errorf("nothing left out: %s", got)
	}
}

func TestLimitedLoggerIsBounded(t *testing.T) {
	var b bytes.Buffer
	log, _, err := NewLogger(&b, "info", "text")
	if err != nil {
		t.Fatal(err)
	}
	l := NewLimitedLogger(log, newClock().Now)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 250 {
				l.Warn(t.Context(), fmt.Sprint(g, "_", i), "refused")
			}
		})
	}
	wg.Wait()
	if n := strings.Count(b.String(), "\n"); n != maxCauses+1 {
		t.Errorf("%d lines of 1000 causes, want %d", n, maxCauses+1)
	}
	if n := len(l.by); n != maxCauses+1 {
		t.Errorf("%d causes kept, want %d", n, maxCauses+1)
	}
	NewLimitedLogger(nil, nil).Warn(t.Context(), "x", "discarded")
}
