package node

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy"
)

// TestRefusalLog: the first refusal of each kind in a minute has a line, the others are in the
// minute's summary; other outcomes have neither.
func TestRefusalLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		l := &refusalLog{log: slog.New(slog.NewTextHandler(&out, nil)), counts: make(map[refusalKind]int)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { l.run(ctx); close(done) }()
		say := func() []string {
			synctest.Wait()
			return strings.Split(strings.TrimSpace(out.take()), "\n")
		}
		timeout, full := admission.Timeout.Outcome(), admission.QueueFull.Outcome()
		for _, o := range []admission.Outcome{timeout, timeout, full, timeout, admission.OutcomeAdmitted, admission.OutcomeClientGone, admission.OutcomeUpstreamError} {
			l.add(&proxy.Record{Pool: "files", Outcome: o, Status: 503, Wait: 2 * time.Second})
		}
		got := say()
		if len(got) != 2 || !strings.Contains(got[0], "outcome=timeout status=503 wait_ms=2000") || !strings.Contains(got[1], "outcome=queue_full") {
			t.Errorf("at once:\n%s", strings.Join(got, "\n"))
		}
		time.Sleep(refusalSummary)
		got = say()
		if len(got) != 2 || !strings.Contains(got[0], "outcome=queue_full requests=1") || !strings.Contains(got[1], "outcome=timeout requests=3") {
			t.Errorf("after a minute:\n%s", strings.Join(got, "\n"))
		}
		time.Sleep(refusalSummary)
		if got = say(); len(got) != 1 || got[0] != "" {
			t.Errorf("a minute without refusals:\n%s", strings.Join(got, "\n"))
		}
		l.add(&proxy.Record{Pool: "files", Outcome: timeout})
		if got = say(); len(got) != 1 || !strings.Contains(got[0], "request refused") {
			t.Errorf("the first of another minute:\n%s", strings.Join(got, "\n"))
		}
		cancel()
		<-done
		if got = say(); len(got) != 1 || !strings.Contains(got[0], "outcome=timeout requests=1") {
			t.Errorf("at the end:\n%s", strings.Join(got, "\n"))
		}
	})
}

// lockedBuffer is a buffer that one goroutine writes and another empties.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// take empties the buffer and returns its content.
func (b *lockedBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.buf.Reset()
	return b.buf.String()
}
