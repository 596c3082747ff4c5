package http1

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestWriteRefused: what would be read as something else is not written.
func TestWriteRefused(t *testing.T) {
	for _, c := range []struct {
		what string
		do   func(dst []byte) ([]byte, error)
		rule Rule
	}{
		{"no method", func(b []byte) ([]byte, error) { return AppendRequestLine(b, "", "/") }, BadMethod},
		{"a method with a space", func(b []byte) ([]byte, error) { return AppendRequestLine(b, "G T", "/") }, BadMethod},
		{"no target", func(b []byte) ([]byte, error) { return AppendRequestLine(b, "GET", "") }, BadTarget},
		{"a target with a space", func(b []byte) ([]byte, error) { return AppendRequestLine(b, "GET", "/ HTTP/1.1") }, BadTarget},
		{"a target with a line break", func(b []byte) ([]byte, error) { return AppendRequestLine(b, "GET", "/\r\nX:") }, BadTarget},
		{"a host with a line break", func(b []byte) ([]byte, error) { return AppendHost(b, "h\r\nX: y") }, BadHost},
		{"no host", func(b []byte) ([]byte, error) { return AppendHost(b, "") }, BadHost},
		{"no name", func(b []byte) ([]byte, error) { return AppendField(b, "", "a") }, BadName},
		{"a name with a colon", func(b []byte) ([]byte, error) { return AppendField(b, "A: b\r\nC", "d") }, BadName},
		{"a value with a line break", func(b []byte) ([]byte, error) { return AppendField(b, "A", "b\r\nC: d") }, BareCR},
		{"a value with LF", func(b []byte) ([]byte, error) { return AppendField(b, "A", "b\nC: d") }, BadValue},
		{"a value with NUL", func(b []byte) ([]byte, error) { return AppendField(b, "A", []byte{0}) }, BadValue},
	} {
		got, err := c.do([]byte("before"))
		if string(got) != "before" || ruleOf(err) != c.rule {
			t.Errorf("%s: %q, %v", c.what, got, err)
		}
	}
}

// TestFrameChunk: a chunk is framed where it stands.
func TestFrameChunk(t *testing.T) {
	for n, head := range map[int]string{1: "1\r\n", 15: "f\r\n", 16: "10\r\n", 4096: "1000\r\n"} {
		buf := make([]byte, ChunkRoom+n+ChunkEnd)
		data := bytes.Repeat([]byte("x"), n)
		copy(buf[ChunkRoom:], data)
		if got, want := string(FrameChunk(buf, n)), head+string(data)+"\r\n"; got != want {
			t.Errorf("%d: %.40q", n, got)
		}
	}
}

// TestAnswer: an answer of the gateway's own, to the byte.
func TestAnswer(t *testing.T) {
	now := time.Date(2026, 11, 3, 4, 5, 6, 0, time.FixedZone("", 3600))
	const date = "Date: Tue, 03 Nov 2026 03:05:06 GMT\r\n"
	for _, c := range []struct {
		answer Answer
		want   string
	}{
		{Answer{Status: 400, Body: []byte("no\n"), Close: true}, "HTTP/1.1 400 Bad Request\r\n" + date + "Connection: close\r\nContent-Length: 3\r\n\r\nno\n"},
		{Answer{Status: 503, Fields: Fields{{Name: "Retry-After", Value: "5"}}, Body: []byte("no\n"), NoBody: true}, "HTTP/1.1 503 Service Unavailable\r\n" + date + "Retry-After: 5\r\nContent-Length: 3\r\n\r\n"},
		{Answer{Status: 200}, "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 0\r\n\r\n"},
		{Answer{Status: 204}, "HTTP/1.1 204 No Content\r\n" + date + "\r\n"},
		{Answer{Status: 299}, "HTTP/1.1 299 \r\n" + date + "Content-Length: 0\r\n\r\n"},
	} {
		got, err := c.answer.Append(nil, now)
		if err != nil || string(got) != c.want {
			t.Errorf("%q, %v, want %q", got, err, c.want)
		}
		var h Head
		if n, err := h.Response(got, roomy); n == 0 || err != nil {
			t.Errorf("%q cannot be read: %v", got, err)
		}
	}
	a := Answer{Status: 200, Fields: Fields{{Name: "A", Value: "b\r\nc"}}}
	if got, err := a.Append([]byte("before"), now); string(got) != "before" || err == nil {
		t.Errorf("%q, %v", got, err)
	}
	later, _ := (&Answer{Status: 204}).Append(nil, now.Add(time.Second))
	if !strings.Contains(string(later), "03:05:07") {
		t.Errorf("a second later it is %q", later)
	}
}
