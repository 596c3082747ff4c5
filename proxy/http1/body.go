package http1

import (
	"bytes"
	"io"
	"slices"
)

const (
	// maxChunkLine is how long the line of a chunk may be, its extension included.
	maxChunkLine = 256
	// chunkLine is how much of each line is free, and maxWaste by how much the rest of all lines may
	// exceed the data: who sends more sends no body.
	chunkLine = 16
	maxWaste  = 8 << 10
	// maxSizeDigits keeps a chunk's size below 2^60.
	maxSizeDigits = 15
)

// Body reads the body of a message. The zero value is one without a body. It is for one goroutine
// at a time.
type Body struct {
	in    *Input
	kind  Kind
	state bodyState
	left  int64 // of a known length, or of the present chunk
	seen  int   // bytes of the present line that have no end
	waste int64
	err   error // final, once it is set

	limits  Limits
	trailer *Head // nil: none has come
}

type bodyState uint8

const (
	atSize    bodyState = iota // the line of a chunk follows
	inData                     // data follows
	afterData                  // the end of a chunk follows
	inTrailer                  // the last chunk has come
)

// Reset makes b the body that follows in in, framed by f, with a trailer within limits.
func (b *Body) Reset(in *Input, f Framing, trailer Limits) {
	*b = Body{in: in, kind: f.Kind, limits: trailer}
	switch f.Kind {
	case Length:
		b.left = f.Length
	case None, Tunnel:
		b.err = io.EOF
	case Chunked, UntilClose:
	}
}

// Left returns how much of a body of known length has not been read; -1 of others.
func (b *Body) Left() int64 {
	if b.kind == Length || b.kind == None {
		return b.left
	}
	return -1
}

// Ended reports whether the body was read to its end.
func (b *Body) Ended() bool { return b.in == nil || b.err == io.EOF }

// Trailer returns the fields that came behind the last chunk; nil if there were none. They are
// there when Read has returned io.EOF. Those by which a message is framed or routed are removed
// (RFC 9110, section 6.5.1).
func (b *Body) Trailer() *Head { return b.trailer }

// Skip notes that n bytes of a body of known length were read from the connection itself.
func (b *Body) Skip(n int64) {
	if b.left -= n; b.left == 0 {
		b.err = io.EOF
	}
}

// Read implements io.Reader. It returns io.EOF with the last bytes, if their end is known by then,
// io.ErrUnexpectedEOF if the connection ends first, and a Rule if the body breaks it.
func (b *Body) Read(p []byte) (int, error) {
	if b.err != nil || b.in == nil {
		if b.err == nil {
			return 0, io.EOF
		}
		return 0, b.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	var n int
	switch b.kind {
	case Chunked:
		n, b.err = b.readChunks(p)
	case Length:
		n, b.err = b.readData(p)
		if b.left == 0 {
			b.err = io.EOF
		}
	default:
		n, b.err = b.readSome(p)
	}
	if n > 0 && b.err != io.EOF {
		err := b.err
		b.err = nil
		if rule, ok := err.(Rule); ok {
			b.err = rule // nothing comes behind it
		}
		return n, nil
	}
	return n, b.err
}

// readSome reads what is buffered, or else from the connection.
func (b *Body) readSome(p []byte) (int, error) {
	if b.in.Len() == 0 {
		return b.in.readSource(p)
	}
	n := copy(p, b.in.Buffered())
	b.in.Discard(n)
	return n, nil
}

// readData reads some of what is left.
func (b *Body) readData(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.readSome(p)
	b.left -= int64(n)
	return n, unexpected(err)
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readChunks reads data of chunks. It waits for the connection only while it has none.
func (b *Body) readChunks(p []byte) (n int, err error) {
	for {
		for b.state != inData {
			done, rule := b.readLine()
			if rule != 0 {
				return n, rule
			}
			if b.err != nil {
				return n, b.err
			}
			if done {
				continue
			}
			if n > 0 {
				return n, nil
			}
			if err := b.in.Fill(); err != nil {
				return n, unexpected(err)
			}
		}
		if n == len(p) || n > 0 && b.in.Len() == 0 {
			return n, nil
		}
		m, err := b.readData(p[n:])
		n += m
		if b.left == 0 {
			b.state = afterData
		}
		if err != nil {
			return n, err
		}
	}
}

// readLine reads what stands between data. It reports false if it is not there yet.
func (b *Body) readLine() (done bool, rule Rule) {
	next := b.in.Buffered()
	switch b.state {
	case afterData:
		switch {
		case len(next) > 0 && next[0] != '\r', len(next) > 1 && next[1] != '\n':
			return false, BadChunkEnd
		case len(next) < 2:
			return false, 0
		}
		b.in.Discard(2)
		b.state = atSize
		return true, 0
	case inTrailer:
		return b.readTrailer(next)
	default:
		return b.readSize(next)
	}
}

// readSize reads the line of a chunk.
func (b *Body) readSize(next []byte) (done bool, rule Rule) {
	i := bytes.IndexByte(next[b.seen:], '\n')
	if i < 0 {
		b.seen = len(next)
		if len(next) >= maxChunkLine {
			return false, ChunkLineTooLong
		}
		return false, 0
	}
	end := b.seen + i
	b.seen = 0
	switch {
	case end >= maxChunkLine:
		return false, ChunkLineTooLong
	case end == 0 || next[end-1] != '\r':
		return false, BareLF
	}
	size, rule := parseChunkLine(next[:end-1])
	if rule != 0 {
		return false, rule
	}
	b.waste = max(0, b.waste+int64(end)-chunkLine-size)
	if b.waste > maxWaste {
		return false, ChunkLineTooLong
	}
	b.in.Discard(end + 1)
	b.left, b.state = size, inData
	if size == 0 {
		b.state = inTrailer
	}
	return true, 0
}

// readTrailer reads the trailer and the empty line behind it.
func (b *Body) readTrailer(next []byte) (done bool, rule Rule) {
	if len(next) >= 2 && next[0] == '\r' && next[1] == '\n' && b.trailer == nil {
		b.in.Discard(2)
		b.err = io.EOF
		return true, 0
	}
	if b.trailer == nil {
		b.trailer = new(Head)
	}
	n, err := b.trailer.trailer(next, b.limits)
	if rule, ok := err.(Rule); ok {
		b.trailer = nil
		return false, rule
	}
	if n == 0 {
		return false, 0
	}
	b.trailer = b.trailer.clone()
	// Fields that frame a message are to be ignored there, and nobody else shall have them.
	b.trailer.fields = slices.DeleteFunc(b.trailer.fields, func(f field) bool { return f.id.isFraming() })
	b.in.Discard(n)
	b.err = io.EOF
	return true, 0
}

// parseChunkLine parses the line of a chunk without its end: a size and extensions (RFC 9112,
// section 7.1). Extensions have no meaning here.
func parseChunkLine(line []byte) (size int64, rule Rule) {
	i := 0
	for i < len(line) && is(line[i], isHex) {
		size = size<<4 | int64(hexValue(line[i]))
		i++
		if i > maxSizeDigits {
			return 0, BadChunkSize
		}
	}
	if i == 0 {
		return 0, BadChunkSize
	}
	if i == len(line) {
		return size, 0
	}
	if line[i] != ';' {
		return 0, BadChunkSize
	}
	for i < len(line) {
		i = afterExtension(line, i)
		if i < 0 {
			return 0, BadChunkExtension
		}
	}
	return size, 0
}

// afterExtension returns where the extension at i ends, which is where the line ends or the next
// one begins; -1 if it is none.
func afterExtension(line []byte, i int) int {
	if line[i] != ';' {
		return -1
	}
	end := afterToken(line, i+1)
	if end == i+1 {
		return -1
	}
	if end == len(line) || line[end] != '=' {
		return end
	}
	begin := end + 1
	if begin < len(line) && line[begin] == '"' {
		return afterQuoted(line, begin)
	}
	if end = afterToken(line, begin); end == begin {
		return -1
	}
	return end
}

func afterToken(line []byte, i int) int {
	for i < len(line) && is(line[i], isTokenByte) {
		i++
	}
	return i
}

// afterQuoted returns where the quoted string at i ends (RFC 9110, section 5.6.4); -1: nowhere.
func afterQuoted(line []byte, i int) int {
	for i++; i < len(line); i++ {
		switch c := line[i]; {
		case isBadInValue(c):
			return -1
		case c == '"':
			return i + 1
		case c == '\\':
			if i++; i == len(line) || isBadInValue(line[i]) {
				return -1
			}
		}
	}
	return -1
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}
