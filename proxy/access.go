package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// AccessFormat is the form of the access log.
type AccessFormat uint8

// The forms.
const (
	// AccessOff: no access log.
	AccessOff AccessFormat = iota
	// AccessStructured: a line of Config.Logger, at level Info. It alone tells
	// wait, hold, position and trace.
	AccessStructured
	// AccessJSON: the same line, in JSON, to Config.AccessWriter: cheaper.
	AccessJSON
	// AccessCommon: the Common Log Format, to Config.AccessWriter.
	AccessCommon
	// AccessCombined: the same with Referer and User-Agent.
	AccessCombined
)

// logAccess writes the request's line.
func (ex *exchange) logAccess(r *http.Request) {
	switch ex.snapshot.cfg.AccessLog {
	case AccessOff:
	case AccessStructured:
		ex.logStructured(r)
	case AccessJSON:
		ex.snapshot.writeLine(func(b []byte) []byte { return ex.appendJSON(b, r) })
	case AccessCommon, AccessCombined:
		ex.snapshot.writeLine(func(b []byte) []byte { return ex.appendAccess(b, r) })
	}
}

// lineBuffers keep lines of the access log while they are made.
var lineBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

func (s *snapshot) writeLine(appendLine func([]byte) []byte) {
	buf := lineBuffers.Get().(*[]byte)
	*buf = appendLine((*buf)[:0])
	_, _ = s.cfg.AccessWriter.Write(*buf) // there is nobody to tell
	lineBuffers.Put(buf)
}

func (ex *exchange) logStructured(r *http.Request) {
	ctx := context.WithoutCancel(r.Context())
	if !ex.snapshot.cfg.Logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	rec := &ex.rec
	ex.snapshot.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "request",
		slog.String("remote", r.RemoteAddr),
		slog.String("client", ex.snapshot.clientAddr(r).String()),
		slog.String("method", r.Method),
		slog.String("host", r.Host),
		slog.String("path", loggedPath(r.URL.Path, r.URL.Path)),
		slog.String("proto", r.Proto),
		slog.String("pool", rec.Pool),
		slog.String("outcome", rec.Outcome.String()),
		slog.Int("status", rec.Status),
		slog.String("upstream", rec.Upstream),
		slog.Int("upstream_status", rec.UpstreamStatus),
		slog.Int("position", rec.Grant.Position),
		slog.Float64("wait_ms", milliseconds(rec.Wait)),
		slog.Float64("hold_ms", milliseconds(rec.Hold)),
		slog.Int64("bytes", rec.Bytes),
		slog.Bool("aborted", rec.Aborted),
		ex.traceAttr(),
		ex.requestIDAttr(),
		ex.failureAttr(),
	)
}

// requestIDAttr names the request in a log line; nothing if it has no id.
func (ex *exchange) requestIDAttr() slog.Attr {
	if ex.requestID == "" {
		return slog.Attr{}
	}
	return slog.String("request_id", ex.requestID)
}

// failureAttr says why the upstream gave no answer; nothing if it gave one.
func (ex *exchange) failureAttr() slog.Attr {
	if ex.attempt.err == nil {
		return slog.Attr{}
	}
	return slog.String("error", ex.attempt.err.Error())
}

// loggedPath returns how a path is written in logs: what follows in a ticket's
// is a secret.
func loggedPath(path, written string) string {
	if isTicketPath(path) {
		return ticketsPath
	}
	return written
}

// appendAccess appends a line in the Common Log Format or that with two fields
// more, as Apache and nginx write them. There is no remote user: the gateway
// knows none.
func (ex *exchange) appendAccess(b []byte, r *http.Request) []byte {
	b = ex.snapshot.clientAddr(r).AppendTo(b)
	b = append(b, " - - ["...)
	b = ex.arrived.AppendFormat(b, "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	b = appendEscaped(b, r.Method)
	b = append(b, ' ')
	b = appendEscaped(b, loggedPath(r.URL.Path, r.URL.EscapedPath()))
	b = append(b, ' ')
	b = appendEscaped(b, r.Proto)
	b = append(b, `" `...)
	if ex.rec.Status == 0 { // a TCP connection
		b = append(b, '-')
	} else {
		b = strconv.AppendInt(b, int64(ex.rec.Status), 10)
	}
	b = append(b, ' ')
	if ex.rec.Bytes == 0 {
		b = append(b, '-')
	} else {
		b = strconv.AppendInt(b, ex.rec.Bytes, 10)
	}
	if ex.snapshot.cfg.AccessLog == AccessCombined {
		referer, _, _ := strings.Cut(r.Header.Get("Referer"), "?")
		b = appendQuoted(b, referer)
		b = appendQuoted(b, r.Header.Get("User-Agent"))
	}
	return append(b, '\n')
}

func appendQuoted(b []byte, s string) []byte {
	if s == "" {
		s = "-"
	}
	b = append(b, ` "`...)
	return append(appendEscaped(b, s), '"')
}

// appendEscaped appends s so that it can neither end its field nor its line, nor
// talk to a terminal.
func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '\\', 'x', hex[c>>4], hex[c&0xf])
		default:
			b = append(b, c)
		}
	}
	return b
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
