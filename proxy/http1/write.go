package http1

import (
	"strconv"
	"sync/atomic"
	"time"
)

// text is what may be written.
type text interface{ ~string | ~[]byte }

// AppendRequestLine appends a request line of HTTP/1.1. The error is a Rule.
func AppendRequestLine[M, T text](dst []byte, method M, target T) ([]byte, error) {
	from := len(dst)
	dst = append(dst, method...)
	if !all(dst[from:], isTokenByte) {
		return dst[:from], BadMethod
	}
	dst = append(dst, ' ')
	behind := len(dst)
	dst = append(dst, target...)
	if !all(dst[behind:], isTargetByte) {
		return dst[:from], BadTarget
	}
	return append(dst, " HTTP/1.1\r\n"...), nil
}

// AppendHost appends the field Host. The error is a Rule.
func AppendHost[T text](dst []byte, host T) ([]byte, error) {
	from := len(dst)
	dst = append(dst, "Host: "...)
	behind := len(dst)
	dst = append(dst, host...)
	if !isHost(dst[behind:]) {
		return dst[:from], BadHost
	}
	return append(dst, lineBreak...), nil
}

// AppendStatusLine appends a status line of HTTP/1.1, with the status's usual reason phrase.
// A status is a number from 100 to 999.
func AppendStatusLine(dst []byte, status int) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	return append(append(dst, statusText(status)...), lineBreak...)
}

// AppendField appends the line of a field. The error is a Rule: the name is not a token, or the
// value has a control character.
func AppendField[N, V text](dst []byte, name N, value V) ([]byte, error) {
	from := len(dst)
	dst = append(dst, name...)
	if !all(dst[from:], isTokenByte) {
		return dst[:from], BadName
	}
	dst = append(dst, ": "...)
	behind := len(dst)
	dst = append(dst, value...)
	if rule := judgeValue(dst[behind:]); rule != 0 {
		return dst[:from], rule
	}
	return append(dst, lineBreak...), nil
}

// Append appends the fields that say how the body is framed.
func (f Framing) Append(dst []byte) []byte {
	switch {
	case f.Kind == Chunked:
		return append(dst, "Transfer-Encoding: chunked\r\n"...)
	case f.Sized:
		dst = append(dst, "Content-Length: "...)
		return append(strconv.AppendInt(dst, f.Length, 10), lineBreak...)
	default:
		return dst
	}
}

const lineBreak = "\r\n"

// ChunkRoom is the room in front of a chunk's data that FrameChunk needs, ChunkEnd the room behind.
const (
	ChunkRoom = 18 // 16 digits and a line break
	ChunkEnd  = len(lineBreak)
)

// FrameChunk makes a chunk of n bytes that stand in buf from ChunkRoom on. It returns the part of
// buf that is the chunk. n is at least 1: an empty chunk is the last.
func FrameChunk(buf []byte, n int) []byte {
	const hex = "0123456789abcdef"
	i := ChunkRoom - len(lineBreak)
	copy(buf[i:], lineBreak)
	for v := n; v > 0; v >>= 4 {
		i--
		buf[i] = hex[v&0xf]
	}
	end := ChunkRoom + n
	copy(buf[end:], lineBreak)
	return buf[i : end+len(lineBreak)]
}

// LastChunk ends the data of a body in chunks. The lines of a trailer follow, and an empty one.
const LastChunk = "0\r\n"

// AppendDate appends the field Date for a time.
func AppendDate(dst []byte, now time.Time) []byte {
	second := now.Unix()
	d := lastDate.Load()
	if d == nil || d.second != second {
		d = &dateLine{second: second}
		d.line = append(now.UTC().AppendFormat(append(d.line, "Date: "...), "Mon, 02 Jan 2006 15:04:05 GMT"), lineBreak...)
		lastDate.Store(d)
	}
	return append(dst, d.line...)
}

// dateLine is the line of a second.
type dateLine struct {
	second int64
	line   []byte
}

var lastDate atomic.Pointer[dateLine]
