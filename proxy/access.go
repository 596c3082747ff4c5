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

// lineBuffers are the buffers in which lines of the access log are built.
var lineBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// logAccess writes a line.
func (s *snapshot) logAccess(ctx context.Context, e *accessEntry) {
	if s.cfg.AccessLog == AccessStructured {
		if s.cfg.Logger.Enabled(ctx, slog.LevelInfo) {
			s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "request", e.attrs(make([]slog.Attr, 0, maxAccessAttrs))...)
		}
		return
	}
	buf := lineBuffers.Get().(*[]byte)
	*buf = e.appendJSON((*buf)[:0], s.cfg.Gateway)
	_, _ = s.cfg.AccessWriter.Write(*buf) // a lost line is not worth a failure
	lineBuffers.Put(buf)
}

// maxAccessAttrs is how many fields a structured line has at most.
const maxAccessAttrs = 19

// attrs appends the fields of a structured line.
func (e *accessEntry) attrs(to []slog.Attr) []slog.Attr {
	to = append(to,
		slog.String("remote", e.remote),
		slog.String("client", e.client.String()),
		slog.String("method", e.method),
		slog.String("host", e.host),
		slog.String("path", e.path),
		slog.String("proto", e.proto),
		slog.String("pool", e.Pool),
		slog.String("outcome", e.Outcome.String()),
		slog.Int("status", e.Status),
		slog.String("upstream", e.Upstream),
		slog.Int("upstream_status", e.UpstreamStatus),
		slog.Int("position", e.Grant.Position),
		slog.Float64("wait_ms", milliseconds(e.Wait)),
		slog.Float64("hold_ms", milliseconds(e.Hold)),
		slog.Int64("bytes", e.Bytes),
		slog.Bool("aborted", e.Aborted),
	)
	if e.TraceID != "" {
		to = append(to, slog.String("trace_id", e.TraceID))
	}
	if e.requestID != "" {
		to = append(to, slog.String("request_id", e.requestID))
	}
	if e.failure != nil {
		to = append(to, slog.String("error", e.failure.Error()))
	}
	return to
}

// appendJSON appends the line that slog would write in JSON. Slog takes several times as
// long.
func (e *accessEntry) appendJSON(b []byte, gateway string) []byte {
	b = append(b, `{"time":"`...)
	b = time.Now().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","level":"INFO","msg":"request"`...)
	if gateway != "" {
		b = append(b, `,"gateway":`...)
		b = appendJSONString(b, gateway)
	}
	var room [maxAccessAttrs]slog.Attr
	for _, a := range e.attrs(room[:0]) {
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
	return append(b, '}', '\n')
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
