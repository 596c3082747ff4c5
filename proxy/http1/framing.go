package http1

// Kind is how the end of a body is found.
type Kind uint8

// The kinds.
const (
	None       Kind = iota // there is no body
	Length                 // it has a known length, of 1 or more
	Chunked                // it comes in chunks
	UntilClose             // it ends with the connection
	Tunnel                 // what follows is of another protocol
)

// Framing is how a message's body is framed.
type Framing struct {
	Kind Kind
	// Sized says that there is a Content-Length: always if Kind is Length. If it is None the
	// length is 0, or tells of the body that the same answer to a GET would have.
	Sized bool
	// Persists says that the connection may carry another message behind this one.
	Persists bool
	Length   int64 // what Content-Length says, if Sized; 0 otherwise
}

// RequestFraming returns how a request's body is framed (RFC 9112, section 6). The error is a
// Rule.
func (h *Head) RequestFraming() (Framing, error) {
	f, rule := h.framing()
	if rule != 0 {
		return Framing{}, rule
	}
	return f, nil
}

// ResponseFraming returns how the body of an answer to a request with this method is framed. The
// error is a Rule.
//
// Fields that an answer without a body may not have, such as Transfer-Encoding with status 204,
// are judged like those of others, and say nothing: whoever takes them for more finds bytes
// behind the head, and there must be none.
func (h *Head) ResponseFraming(method string) (Framing, error) {
	f, rule := h.framing()
	if rule != 0 {
		return Framing{}, rule
	}
	status := h.first.status
	switch {
	case status == 101, method == "CONNECT" && status >= 200 && status < 300:
		return Framing{Kind: Tunnel}, nil
	case status < 200, status == 204:
		return Framing{Kind: None, Persists: f.Persists}, nil
	case method == "HEAD", status == 304:
		f.Kind = None
		return f, nil
	case f.Kind == None && !f.Sized:
		return Framing{Kind: UntilClose}, nil
	default:
		return f, nil
	}
}

// framing is what the fields say. Every doubt is an error: what two readers would end at two
// places, no one may end at one.
func (h *Head) framing() (Framing, Rule) {
	f := Framing{Persists: h.persists()}
	length, coding := h.Find(ContentLength), h.Find(TransferEncoding)
	switch {
	case length >= 0 && coding >= 0:
		return f, LengthAndCoding
	case coding >= 0 && h.next(TransferEncoding, coding+1) >= 0:
		return f, ManyCodings
	case coding >= 0 && h.first.minor == 0:
		return f, CodingInHTTP10
	case coding >= 0:
		f.Kind = Chunked
		if rule := judgeCoding(h.value(coding)); rule != 0 {
			return f, rule
		}
		return f, h.judgeAnnounced()
	case length >= 0 && h.next(ContentLength, length+1) >= 0:
		return f, ManyLengths
	case length >= 0:
		n, ok := parseLength(h.value(length))
		if !ok {
			return f, BadLength
		}
		f.Length, f.Sized = n, true
		if n > 0 {
			f.Kind = Length
		}
	}
	return f, 0
}

// persists reports whether the connection goes on behind the message (RFC 9112, section 9.3).
func (h *Head) persists() bool {
	switch {
	case h.HasToken(Connection, "close"):
		return false
	case h.first.minor == 0:
		return h.HasToken(Connection, "keep-alive")
	default:
		return true
	}
}

// judgeCoding takes "chunked" alone.
func judgeCoding(value []byte) Rule {
	if equalFold(value, "chunked") {
		return 0
	}
	other := false
	for i := 0; i < len(value); {
		j := i
		for j < len(value) && is(value[j], isTokenByte) {
			j++
		}
		if i == j {
			i++ // between two words, or in a parameter
			continue
		}
		if !equalFold(value[i:j], "chunked") {
			other = true
		} else if j < len(value) {
			return BadCoding
		}
		i = j
	}
	if other {
		return UnknownCoding
	}
	return BadCoding
}

// judgeAnnounced refuses a trailer that is to frame the message, or to say whom it is for.
func (h *Head) judgeAnnounced() Rule {
	if h.Find(Trailer) < 0 {
		return 0
	}
	for id := Other + 1; id < ids; id++ {
		if id.isFraming() && h.HasToken(Trailer, id.String()) {
			return BadTrailer
		}
	}
	return 0
}

// parseLength parses a length. Other than shortest forms there are none: some read 010 as 8.
func parseLength(b []byte) (n int64, ok bool) {
	const most = 18 // digits that always fit
	if len(b) == 0 || len(b) > most || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	for _, c := range b {
		if !is(c, isDigit) {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
