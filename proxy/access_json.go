package proxy

import (
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

// appendJSON appends the line that logStructured would write in JSON, without slog,
// which costs several times as much.
func (ex *exchange) appendJSON(b []byte, r *http.Request) []byte {
	rec := &ex.rec
	text := func(key, value string) {
		b = append(b, ',', '"')
		b = append(b, key...)
		b = append(b, '"', ':')
		b = appendJSONString(b, value)
	}
	number := func(key string, value int64) {
		b = append(b, ',', '"')
		b = append(b, key...)
		b = append(b, '"', ':')
		b = strconv.AppendInt(b, value, 10)
	}
	millis := func(key string, d time.Duration) {
		b = append(b, ',', '"')
		b = append(b, key...)
		b = append(b, '"', ':')
		b = strconv.AppendFloat(b, milliseconds(d), 'f', -1, 64)
	}
	b = append(b, `{"time":"`...)
	b = time.Now().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","level":"INFO","msg":"request"`...)
	if ex.snapshot.cfg.Gateway != "" {
		text("gateway", ex.snapshot.cfg.Gateway)
	}
	text("remote", r.RemoteAddr)
	b = append(b, `,"client":"`...)
	b = ex.snapshot.clientAddr(r).AppendTo(b)
	b = append(b, '"')
	text("method", r.Method)
	text("host", r.Host)
	text("path", loggedPath(r.URL.Path, r.URL.Path))
	text("proto", r.Proto)
	text("pool", rec.Pool)
	text("outcome", rec.Outcome.String())
	number("status", int64(rec.Status))
	text("upstream", rec.Upstream)
	number("upstream_status", int64(rec.UpstreamStatus))
	number("position", int64(rec.Grant.Position))
	millis("wait_ms", rec.Wait)
	millis("hold_ms", rec.Hold)
	number("bytes", rec.Bytes)
	b = append(b, `,"aborted":`...)
	b = strconv.AppendBool(b, rec.Aborted)
	if rec.TraceID != "" {
		text("trace_id", rec.TraceID)
	}
	if ex.requestID != "" {
		text("request_id", ex.requestID)
	}
	if ex.attempt.err != nil {
		text("error", ex.attempt.err.Error())
	}
	return append(b, '}', '\n')
}

// appendJSONString appends s as a JSON string that no terminal acts on and no line
// ends in.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
			i++
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
			i++
		case c < utf8.RuneSelf:
			b = append(b, c)
			i++
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r) // what is no UTF-8 becomes U+FFFD
			i += size
		}
	}
	return append(b, '"')
}
