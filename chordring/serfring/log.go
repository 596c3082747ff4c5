package serfring

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/kgate/kgate/internal/oncelog"
)

// adviser brings serf's log lines into slog, as a writer below a log.Logger.
type adviser struct {
	logger *slog.Logger
	// closed: serf's goroutines end a moment after it, and what they complain
	// about then is our doing.
	closed atomic.Bool

	once oncelog.Limit
}

func newAdviser(logger *slog.Logger) *adviser { return &adviser{logger: logger} }

// Write takes one line of the form "[LEVEL] component: text". It never fails. Only what nobody
// else says is for operators: gossip suspects, and what a fault does to the links, and to leases, says more.
func (w *adviser) Write(line []byte) (int, error) {
	if w.closed.Load() {
		return len(line), nil
	}
	component, text := parseLine(string(line))
	detail := slog.String("detail", text)
	everyday := bytes.HasPrefix(line, []byte("[DEBUG]")) || bytes.HasPrefix(line, []byte("[INFO]"))
	if !everyday && (strings.Contains(text, duplicateName) || strings.Contains(text, "Conflicting address")) {
		if w.once.First("name") {
			w.logger.Warn("a gateway was refused: its name is in use", slog.String("hint", nameHint), detail)
		}
		return len(line), nil
	}
	w.logger.Debug("gossip", slog.String("component", component), detail)
	return len(line), nil
}

// nameHint is what to do about a name that is in use.
const nameHint = "give every gateway a name of its own; if the other one is its last run, this goes away in a few seconds"

func parseLine(line string) (component, text string) {
	text = strings.TrimSpace(line)
	if rest, ok := strings.CutPrefix(text, "["); ok {
		if _, rest, ok := strings.Cut(rest, "]"); ok {
			text = strings.TrimSpace(rest)
		}
	}
	if c, rest, ok := strings.Cut(text, ": "); ok && !strings.ContainsRune(c, ' ') {
		component, text = c, rest
	}
	return component, text
}

// ended recognises an attempt to connect that reached somebody, and says what ended it; nil: it reached nobody.
func ended(text string) error {
	for _, e := range []struct {
		text string
		err  error
	}{
		{"tls: first record does not look like", errPort},
		{"tls: ", errKey},
		{"x509: ", errKey},
		{"the other end is not a kgate", errBroken},
		{"connection reset by peer", errBroken},
	} {
		if strings.Contains(text, e.text) {
			return e.err
		}
	}
	if strings.HasSuffix(strings.TrimSpace(text), "EOF") {
		return errBroken
	}
	return nil
}

// duplicateName marks the errors of mergeGuard: they come back from memberlist
// as text.
const duplicateName = "the name is in use by a live gateway"
