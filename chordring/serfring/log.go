package serfring

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/kgate/kgate/internal/oncelog"
)

// adviser brings serf's log lines into slog, as a writer below a log.Logger,
// and keeps repeated causes down to one line a minute.
type adviser struct {
	logger *slog.Logger
	// closed: serf's goroutines end a moment after it, and what they complain
	// about then is our doing.
	closed atomic.Bool

	once oncelog.Limit
}

func newAdviser(logger *slog.Logger) *adviser { return &adviser{logger: logger} }

// Write takes one line of the form "[LEVEL] component: text". It never fails.
func (w *adviser) Write(line []byte) (int, error) {
	if w.closed.Load() {
		return len(line), nil
	}
	level, component, text := parseLine(string(line))
	ctx := context.Background()
	detail := slog.String("detail", text)
	switch {
	case level < slog.LevelWarn:
		w.logger.LogAttrs(ctx, level, "gossip", slog.String("component", component), detail)
	case strings.Contains(text, duplicateName), strings.Contains(text, "Conflicting address"):
		if w.once.First("name") {
			w.logger.LogAttrs(ctx, level, "a gateway was refused: its name is in use",
				slog.String("hint", "give every gateway a name of its own"), detail)
		}
	case speaksOfKeys(text):
		if w.once.First("key") {
			w.logger.LogAttrs(ctx, level, "gossip refused: key differs, or the other gateway has just ended",
				slog.String("hint", "give every gateway the same cluster.key_file, or the same gossip key"), detail)
		}
	case w.once.First(cause(text)):
		w.logger.LogAttrs(ctx, level, "gossip", slog.String("component", component), detail)
	default: // said within the last minute
	}
	return len(line), nil
}

// cause is what lines that differ only in addresses, times, numbers and names have in
// common: the first words. What stands behind a colon or in quotes a stranger may have chosen.
func cause(text string) string {
	const words = 4 // of "Got ping for unexpected node NAME", say
	if end := strings.IndexAny(text, `'"`); end >= 0 {
		text = text[:end]
	}
	text, _, _ = strings.Cut(text, ": ")
	first := strings.Fields(text)
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, strings.Join(first[:min(len(first), words)], " "))
}

// everyday recognises warnings that belong to normal life: an end without
// Leave is what Close is, refuting is how a restarted gateway catches up
// with what was said about its last run, and a process that has ended refuses connections.
func everyday(text string) bool {
	return strings.HasSuffix(text, "Shutdown without a Leave") || strings.Contains(text, "Refuting a") ||
		strings.HasSuffix(text, "connect: connection refused")
}

func parseLine(line string) (level slog.Level, component, text string) {
	text = strings.TrimSpace(line)
	if rest, ok := strings.CutPrefix(text, "["); ok {
		if word, rest, ok := strings.Cut(rest, "]"); ok {
			level, text = levelOf(word), strings.TrimSpace(rest)
			if everyday(text) {
				level = slog.LevelDebug
			}
		}
	}
	if c, rest, ok := strings.Cut(text, ": "); ok && !strings.ContainsRune(c, ' ') {
		component, text = c, rest
	}
	return level, component, text
}

// levelOf maps serf's levels: what it calls information is its everyday
// business, and its errors are about peers or the network, so they are
// warnings here.
func levelOf(word string) slog.Level {
	switch word {
	case "WARN", "ERR", "ERROR":
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}

// speaksOfKeys recognises memberlist's errors about encryption; it has no
// typed ones. A peer with another key drops our message and closes: what we
// see then is an EOF while reading its answer.
func speaksOfKeys(text string) bool {
	for _, s := range []string{
		"no installed keys could decrypt",
		"encryption is configured",
		"encryption is not configured",
		"unsupported encryption version",
	} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return strings.HasSuffix(strings.TrimSpace(text), "EOF")
}

// duplicateName marks the errors of mergeGuard: they come back from memberlist
// as text.
const duplicateName = "the name is in use by a live gateway"
