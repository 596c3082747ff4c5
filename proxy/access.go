package proxy

import (
	"context"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kgate/kgate/proxy/http1"
)

// AccessFormat is the form of the access log.
type AccessFormat uint8

// The forms.
const (
	// AccessOff: no access log.
	AccessOff AccessFormat = iota
	// AccessStructured: a record of Config.Logger, at level Info.
	AccessStructured
	// AccessJSON: the same fields as JSON, to Config.AccessWriter, which costs less.
	AccessJSON
)

// accessEntry is what the access log says of a request, or of a TCP connection.
type accessEntry struct {
	*Record
	remote                    string // host:port of the connection
	client                    netip.Addr
	method, host, path, proto string
	requestID                 string
	failure                   error // why the upstream gave no answer
}

// logAccess writes the request's line.
func (ex *exchange) logAccess(r *http1.Request) {
	if ex.snapshot.cfg.AccessLog == AccessOff {
		return
	}
	e := accessEntry{
		Record: &ex.rec, remote: r.Remote, client: ex.info.Remote, method: r.Method, host: r.Host,
		path: r.URL.Path, proto: r.Proto, requestID: ex.requestID, failure: ex.failure,
	}
	if isTicketPath(e.path) { // what follows is a secret
		e.path = ticketsPath
	}
	ex.snapshot.logAccess(context.WithoutCancel(ex.ctx.base), &e)
}

// accessLine is where a line of the access log is built. On the stack its fields would make one of 8 KiB,
// which a client keeps that waits with its next request.
type accessLine struct {
	text  []byte
	attrs [maxAccessAttrs]slog.Attr
}

var lineBuffers = sync.Pool{New: func() any { return &accessLine{text: make([]byte, 0, 1024)} }}

// logAccess writes a line.
func (s *snapshot) logAccess(ctx context.Context, e *accessEntry) {
	line := lineBuffers.Get().(*accessLine)
	defer lineBuffers.Put(line)
	if s.cfg.AccessLog == AccessStructured {
		if s.cfg.Logger.Enabled(ctx, slog.LevelInfo) {
			s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "request", e.attrs(line.attrs[:0])...)
		}
		return
	}
	line.write(e, s.cfg.Gateway)
	_, _ = s.cfg.AccessWriter.Write(line.text) // a lost line is not worth a failure
}

// maxAccessAttrs is how many fields a structured line has at most.
const maxAccessAttrs = 19

// with appends a field. Inlined, it would make the stack larger.
//
//go:noinline
func with(to []slog.Attr, key string, v slog.Value) []slog.Attr {
	return append(to, slog.Attr{Key: key, Value: v})
}

// attrs appends the fields of a structured line.
func (e *accessEntry) attrs(to []slog.Attr) []slog.Attr {
	to = with(to, "remote", slog.StringValue(e.remote))
	to = with(to, "client", slog.StringValue(e.client.String()))
	to = with(to, "method", slog.StringValue(e.method))
	to = with(to, "host", slog.StringValue(e.host))
	to = with(to, "path", slog.StringValue(e.path))
	to = with(to, "proto", slog.StringValue(e.proto))
	to = with(to, "pool", slog.StringValue(e.Pool))
	to = with(to, "outcome", slog.StringValue(e.Outcome.String()))
	to = with(to, "status", slog.IntValue(e.Status))
	to = with(to, "upstream", slog.StringValue(e.Upstream))
	to = with(to, "upstream_status", slog.IntValue(e.UpstreamStatus))
	to = with(to, "position", slog.IntValue(e.Grant.Position))
	to = with(to, "wait_ms", slog.Float64Value(milliseconds(e.Wait)))
	to = with(to, "hold_ms", slog.Float64Value(milliseconds(e.Hold)))
	to = with(to, "bytes", slog.Int64Value(e.Bytes))
	to = with(to, "aborted", slog.BoolValue(e.Aborted))
	if e.TraceID != "" {
		to = with(to, "trace_id", slog.StringValue(e.TraceID))
	}
	if e.requestID != "" {
		to = with(to, "request_id", slog.StringValue(e.requestID))
	}
	if e.failure != nil {
		to = with(to, "error", slog.StringValue(e.failure.Error()))
	}
	return to
}

// write builds the line that slog would write in JSON. Slog takes several times as
// long.
func (l *accessLine) write(e *accessEntry, gateway string) {
	b := append(l.text[:0], `{"time":"`...)
	b = time.Now().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","level":"INFO","msg":"request"`...)
	if gateway != "" {
		b = append(b, `,"gateway":`...)
		b = appendJSONString(b, gateway)
	}
	for _, a := range e.attrs(l.attrs[:0]) {
		b = append(append(append(b, `,"`...), a.Key...), `":`...)
		switch v := a.Value; v.Kind() {
		case slog.KindInt64:
			b = strconv.AppendInt(b, v.Int64(), 10)
		case slog.KindFloat64:
			b = strconv.AppendFloat(b, v.Float64(), 'f', -1, 64)
		case slog.KindBool:
			b = strconv.AppendBool(b, v.Bool())
		default:
			b = appendJSONString(b, v.String())
		}
	}
	l.text = append(b, '}', '\n')
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// appendJSONString appends s as a JSON string without line breaks and control
// characters.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		plain := i
		for i < len(s) && ' ' <= s[i] && s[i] < 0x7f && s[i] != '"' && s[i] != '\\' {
			i++
		}
		if b = append(b, s[plain:i]...); i == len(s) {
			break
		}
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
			i++
		case c < utf8.RuneSelf:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
			i++
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			if i += size; unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
				b = append(b, '\\', 'u', hex[r>>12], hex[r>>8&0xf], hex[r>>4&0xf], hex[r&0xf])
				continue
			}
			b = utf8.AppendRune(b, r) // what is no UTF-8 becomes U+FFFD
		}
	}
	return append(b, '"')
}
