package http1

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// bodies are what follows a head that says chunked, what is read of it, and why it is refused.
var bodies = []struct {
	sent, read, trailer string
	err                 error
}{
	{"0\r\n\r\n", "", "", nil},
	{"3\r\nabc\r\n0\r\n\r\n", "abc", "", nil},
	{"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "abcde", "", nil},
	{"A\r\n0123456789\r\n0\r\n\r\n", "0123456789", "", nil},
	{"0003\r\nabc\r\n000\r\n\r\n", "abc", "", nil},
	{"3;a\r\nabc\r\n0;b=c\r\n\r\n", "abc", "", nil},
	{"3;a=b;c=\"d;\\\" e\"\r\nabc\r\n0\r\n\r\n", "abc", "", nil},
	{"3\r\nabc\r\n0\r\nX-Sum: 1\r\nY: z\r\n\r\n", "abc", "X-Sum=1;Y=z;", nil},
	{"3\r\n\r\n0\r\n0\r\n\r\n", "\r\n0", "", nil},

	{"3\r\nabc\r\n", "abc", "", io.ErrUnexpectedEOF},
	{"3\r\nab", "ab", "", io.ErrUnexpectedEOF},
	{"3", "", "", io.ErrUnexpectedEOF},
	{"3\r\nabc\r\n0\r\n", "abc", "", io.ErrUnexpectedEOF},
	{"", "", "", io.ErrUnexpectedEOF},

	{"\r\n", "", "", BadChunkSize},
	{"x\r\n", "", "", BadChunkSize},
	{"0x3\r\nabc\r\n", "", "", BadChunkSize},
	{"+3\r\nabc\r\n", "", "", BadChunkSize},
	{"-3\r\nabc\r\n", "", "", BadChunkSize},
	{" 3\r\nabc\r\n", "", "", BadChunkSize},
	{"3 \r\nabc\r\n", "", "", BadChunkSize},
	{"3 ;a\r\nabc\r\n", "", "", BadChunkSize},
	{"1_0\r\nabc\r\n", "", "", BadChunkSize},
	{"3\x00\r\nabc\r\n", "", "", BadChunkSize},
	{"ffffffffffffffff1\r\nabc\r\n", "", "", BadChunkSize},
	{"1000000000000003\r\nabc\r\n", "", "", BadChunkSize},
	{"3;\r\nabc\r\n", "", "", BadChunkExtension},
	{"3;=b\r\nabc\r\n", "", "", BadChunkExtension},
	{"3;a=\r\nabc\r\n", "", "", BadChunkExtension},
	{"3;a b\r\nabc\r\n", "", "", BadChunkExtension},
	{"3;a=\"b\r\nabc\r\n", "", "", BadChunkExtension},
	{"3;a=\"\\\r\nabc\r\n", "", "", BadChunkExtension},
	{"3;a=\"b\rc\"\r\nabc\r\n", "", "", BadChunkExtension},
	{"3;a=\"b\"c\r\nabc\r\n", "", "", BadChunkExtension},
	{"3;a\rX\r\nabc\r\n", "", "", BadChunkExtension},
	{"3;[a\r\nabc\r\n", "", "", BadChunkExtension},
	{"3;a,b\r\nabc\r\n", "", "", BadChunkExtension},
	{"3;" + strings.Repeat("a", 300) + "\r\nabc\r\n", "", "", ChunkLineTooLong},
	{strings.Repeat("1;"+strings.Repeat("a", 200)+"\r\nb\r\n", 100) + "0\r\n\r\n", strings.Repeat("b", 44), "", ChunkLineTooLong},
	{"3\nabc\r\n0\r\n\r\n", "", "", BareLF},
	{"3;a\nabc\r\n0\r\n\r\n", "", "", BareLF},
	{"\n", "", "", BareLF},
	{"3\rabc\r\n0\r\n\r\n", "", "", BadChunkSize},
	{"3\r\nabc0\r\n\r\n", "abc", "", BadChunkEnd},
	{"3\r\nabcd\r\n0\r\n\r\n", "abc", "", BadChunkEnd},
	{"3\r\nabc\n0\r\n\r\n", "abc", "", BadChunkEnd},
	{"3\r\nabc\rx0\r\n\r\n", "abc", "", BadChunkEnd},
	{"3\r\nabc\r\n0\r\n\n", "abc", "", BareLF},
	{"3\r\nabc\r\n0\r\nX\r\n\r\n", "abc", "", NoColon},
	{"3\r\nabc\r\n0\r\n X: y\r\n\r\n", "abc", "", FoldedLine},
	{"3\r\nabc\r\n0\r\nX : y\r\n\r\n", "abc", "", SpaceBeforeColon},
	{"3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n", "abc", "", nil},
	{"3\r\nabc\r\n0\r\nA: b\r\ntransfer-encoding: chunked\r\nHost: h\r\nTrailer: A\r\n\r\n", "abc", "A=b;", nil},
	{"3\r\nabc\r\n0\r\nContent-Length : 5\r\n\r\n", "abc", "", SpaceBeforeColon},
	{"3\r\nabc\r\n0\r\n" + strings.Repeat("A: b\r\n", 11) + "\r\n", "abc", "", TooManyFields},
	{"3\r\nabc\r\n0\r\nA: " + strings.Repeat("b", 600) + "\r\n\r\n", "abc", "", TrailerTooLarge},
}

// TestChunks: a body in chunks is read to its end or refused, however it comes, and what follows
// it stays where it is.
func TestChunks(t *testing.T) {
	for _, c := range bodies {
		behind := ""
		if c.err == nil {
			behind = "GET / HTTP/1.1\r\n"
		}
		for how, r := range map[string]io.Reader{
			"at once":        strings.NewReader(c.sent + behind),
			"byte by byte":   iotest.OneByteReader(strings.NewReader(c.sent + behind)),
			"with its error": iotest.DataErrReader(strings.NewReader(c.sent + behind)),
		} {
			for _, size := range []int{1, 2, 1 << 10} {
				in := NewInput(r, 1<<10)
				var b Body
				b.Reset(in, chunks, Limits{Bytes: 512, Fields: 10})
				got, err := readAll(&b, size)
				want := c.err
				if !errors.Is(err, want) || got != c.read || b.Ended() != (want == nil) {
					t.Errorf("%.60q, %s, by %d: %q, %v, want %q, %v", c.sent, how, size, got, err, c.read, want)
				}
				if trailer := dumpTrailer(&b); trailer != c.trailer {
					t.Errorf("%.60q, %s: trailer %q", c.sent, how, trailer)
				}
				if rest, _ := io.ReadAll(r); want == nil && string(in.Buffered())+string(rest) != behind {
					t.Errorf("%.60q, %s, by %d: %q and %q follow", c.sent, how, size, in.Buffered(), rest)
				}
				if again, err2 := readAll(&b, size); again != "" || !errors.Is(err2, want) {
					t.Errorf("%.60q, %s: then %q, %v", c.sent, how, again, err2)
				}
				if s, ok := r.(*strings.Reader); ok {
					s.Reset(c.sent + behind)
				} else {
					break
				}
			}
		}
	}
}

func readAll(b *Body, size int) (string, error) {
	var got strings.Builder
	p := make([]byte, size)
	for {
		n, err := b.Read(p)
		got.Write(p[:n])
		if errors.Is(err, io.EOF) {
			return got.String(), nil
		}
		if err != nil {
			return got.String(), err
		}
	}
}

func dumpTrailer(b *Body) string {
	var s strings.Builder
	if h := b.Trailer(); h != nil {
		for i := range h.Len() {
			s.WriteString(h.NameIn(h.Text(), i) + "=" + string(h.value(i)) + ";")
		}
	}
	return s.String()
}

// TestChunksDoNotWait: a Read returns what is there, and does not wait for more of it.
func TestChunksDoNotWait(t *testing.T) {
	near, far := io.Pipe()
	defer near.Close()
	go func() { _, _ = io.WriteString(far, "3\r\nabc\r\n2\r\nde") }()
	in := NewInput(near, 1<<10)
	var b Body
	b.Reset(in, chunks, roomy)
	p := make([]byte, 100)
	if n, err := b.Read(p); string(p[:n]) != "abcde" || err != nil {
		t.Errorf("%q, %v", p[:n], err)
	}
}

// TestLength: a body of known length ends where it should, with its last bytes.
func TestLength(t *testing.T) {
	for _, c := range []struct {
		sent, read string
		framing    Framing
		err        error
	}{
		{"abcdef", "abc", three, nil},
		{"ab", "ab", three, io.ErrUnexpectedEOF},
		{"abc", "", none, nil},
		{"abc", "", empty, nil},
		{"abc", "", tunnel, nil},
		{"abcdef", "abcdef", untilEnd, nil},
		{"", "", untilEnd, nil},
	} {
		for _, size := range []int{1, 2, 3, 100} {
			in := NewInput(iotest.HalfReader(strings.NewReader(c.sent)), 1<<10)
			var b Body
			b.Reset(in, c.framing, roomy)
			if got, err := readAll(&b, size); got != c.read || !errors.Is(err, c.err) {
				t.Errorf("%+v, by %d: %q, %v", c, size, got, err)
			}
		}
	}
	in := NewInput(strings.NewReader("abc"), 1<<10)
	var b Body
	b.Reset(in, three, roomy)
	if n, err := b.Read(make([]byte, 3)); n != 3 || !errors.Is(err, io.EOF) {
		t.Errorf("the end does not come with the last bytes: %d, %v", n, err)
	}
}

// TestInput: a head, its body and the next head are read one behind the other, however they
// come, and the buffer goes back.
func TestInput(t *testing.T) {
	for _, filler := range []int{0, 1900, 2000, 2005, 2006, 2007, 4000} {
		head := "POST / HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("a", filler) + "\r\n\r\n"
		body := strings.Repeat("5;ab=cd\r\nhello\r\n", 2000) + "0\r\nB: " + strings.Repeat("b", 3000) + "\r\n\r\n"
		for how, r := range map[string]io.Reader{
			"at once":      strings.NewReader(head + body + head),
			"byte by byte": iotest.OneByteReader(strings.NewReader(head + body + head)),
		} {
			in := NewInput(r, 8<<10)
			h := readHead(t, in)
			want := dump(h)
			in.Discard(len(h.b))
			in.Release()
			var b Body
			b.Reset(in, chunks, roomy)
			got, err := readAll(&b, 7)
			if err != nil || got != strings.Repeat("hello", 2000) || len(b.Trailer().value(0)) != 3000 {
				t.Fatalf("%d, %s: %d bytes, %v", filler, how, len(got), err)
			}
			in.Release()
			if next := readHead(t, in); dump(next) != want {
				t.Errorf("%d, %s: the next head is %s", filler, how, dump(next))
			} else {
				in.Discard(len(next.b))
			}
			if in.Release(); in.buf != nil || in.Len() != 0 {
				t.Errorf("%d, %s: the buffer stays", filler, how)
			}
		}
	}
}

func readHead(t *testing.T, in *Input) *Head {
	t.Helper()
	var h Head
	for {
		n, err := h.Request(in.Buffered(), roomy)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return &h
		}
		if err := in.Fill(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInputIsBounded: an Input takes no more than it may.
func TestInputIsBounded(t *testing.T) {
	in := NewInput(strings.NewReader(strings.Repeat("x", 100_000)), 3000)
	var err error
	for err == nil {
		err = in.Fill()
	}
	if !errors.Is(err, io.ErrShortBuffer) || in.Len() < 3000 || in.Len() > 4096 {
		t.Errorf("%d bytes, %v", in.Len(), err)
	}
	if err := NewInput(noReader{}, 10).Fill(); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
}

type noReader struct{}

func (noReader) Read([]byte) (int, error) { return 0, nil }

// TestNoAllocation: a head and a body that are read cost nothing once a connection has its
// buffer.
func TestNoAllocation(t *testing.T) {
	src := strings.NewReader("")
	raw := "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
	in := NewInput(src, 8<<10)
	var h Head
	var b Body
	p := make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		src.Reset(raw)
		n := 0
		for n == 0 {
			_ = in.Fill()
			n, _ = h.Request(in.Buffered(), roomy)
		}
		f, _ := h.RequestFraming()
		in.Discard(n)
		b.Reset(in, f, roomy)
		for {
			if _, err := b.Read(p); err != nil {
				break
			}
		}
		in.Release()
		h.Reset()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
