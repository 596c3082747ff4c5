package http1

import (
	"bytes"
	"slices"
)

// Limits of a head, or of a trailer.
type Limits struct {
	Bytes  int // its lines and the empty one
	Fields int
}

// span is a piece of a head.
type span struct{ begin, end uint32 }

// field is a line of a head.
type field struct {
	name, value span
	id          ID
}

// Head is the head of a message, or a trailer, as spans of the bytes that it was read from:
// they must not change while it is used. The zero value is ready for the first one. It is for
// one goroutine at a time.
//
// Slices that its methods return are parts of those bytes. In its fields, white space around
// values is gone; nothing else is changed.
type Head struct {
	b      []byte
	first  firstLine
	fields []field
	known  uint64 // ids of the fields

	line, seen uint32 // where the present line begins, and the part of it that has no end
	begun      bool   // the first line was read
}

// firstLine is what stands in front of the fields.
type firstLine struct {
	method, target, reason span
	status                 uint16
	minor                  uint8
}

// mostKept is how many fields a Head keeps room for between two heads.
const mostKept = 32

// Reset makes h ready for the next head.
func (h *Head) Reset() {
	fields := h.fields[:0]
	if cap(fields) > mostKept {
		fields = nil
	}
	*h = Head{fields: fields}
}

// kind of a head.
type kind uint8

const (
	ofRequest kind = iota
	ofAnswer
	ofTrailer
)

// Request reads the head of a request from the beginning of b. It returns the head's length, or
// 0 if it is not whole: then it is to be called again with the same bytes and more, which may
// have moved. The error is a Rule, and h of no use until Reset.
func (h *Head) Request(b []byte, l Limits) (n int, err error) { return h.read(b, l, ofRequest) }

// Response reads the head of an answer, as Request does.
func (h *Head) Response(b []byte, l Limits) (n int, err error) { return h.read(b, l, ofAnswer) }

// trailer reads the fields behind the last chunk, with the empty line, as Request does.
func (h *Head) trailer(b []byte, l Limits) (n int, err error) { return h.read(b, l, ofTrailer) }

func (h *Head) read(b []byte, l Limits, k kind) (int, error) {
	h.b = b
	for {
		i := bytes.IndexByte(b[h.seen:], '\n')
		end := int(h.seen) + i
		if i < 0 {
			end = len(b)
		}
		if end >= l.Bytes {
			return 0, h.tooLarge(l, k)
		}
		if i < 0 {
			h.seen = uint32(end)
			return 0, h.early(k)
		}
		begin := int(h.line)
		h.seen = uint32(end + 1)
		h.line = h.seen
		if end == begin || b[end-1] != '\r' {
			return 0, BareLF
		}
		end--
		var rule Rule
		switch {
		case !h.begun && k != ofTrailer:
			h.begun = true
			rule = h.readFirst(begin, end, k)
		case end == begin:
			h.b = b[:end+2]
			if k == ofRequest {
				rule = h.judgeHost()
			}
			if rule != 0 {
				return 0, rule
			}
			return end + 2, nil
		case len(h.fields) >= l.Fields:
			rule = TooManyFields
		default:
			rule = h.readField(begin, end)
		}
		if rule != 0 {
			return 0, rule
		}
	}
}

func (h *Head) tooLarge(l Limits, k kind) Rule {
	switch {
	case k == ofTrailer:
		return TrailerTooLarge
	case k == ofRequest && !h.begun && bytes.IndexByte(h.b[:min(len(h.b), l.Bytes)], ' ') < 0:
		return BadMethod
	case k == ofRequest && !h.begun:
		return TargetTooLong
	default:
		return HeadTooLarge
	}
}

// early judges the first bytes of a head, so that who speaks another protocol need not wait for
// the end of a line that never comes.
func (h *Head) early(k kind) error {
	if h.begun || k == ofTrailer || len(h.b) == 0 {
		return nil
	}
	if k == ofAnswer {
		const begin = "HTTP/1."
		if n := min(len(h.b), len(begin)); string(h.b[:n]) != begin[:n] {
			return h.readFirst(0, len(h.b), k)
		}
		return nil
	}
	if c := h.b[0]; !is(c, isTokenByte) && c != '\r' { // an empty line is no request line
		return BadMethod
	}
	return nil
}

func (h *Head) readFirst(begin, end int, k kind) Rule {
	if k == ofAnswer {
		return h.readStatusLine(begin, end)
	}
	line := h.b[begin:end]
	i := bytes.IndexByte(line, ' ')
	j := bytes.LastIndexByte(line, ' ')
	if i < 0 || i == j || j == i+1 {
		return BadRequestLine
	}
	if !all(line[:i], isTokenByte) {
		return BadMethod
	}
	if target := line[i+1 : j]; !all(target, isTargetByte) {
		if bytes.IndexByte(target, ' ') >= 0 {
			return BadRequestLine
		}
		return BadTarget
	}
	h.first.method = span{uint32(begin), uint32(begin + i)}
	h.first.target = span{uint32(begin + i + 1), uint32(begin + j)}
	return h.readVersion(line[j+1:])
}

func (h *Head) readVersion(b []byte) Rule {
	const begin = "HTTP/"
	if len(b) != len("HTTP/1.1") || string(b[:len(begin)]) != begin || !is(b[5], isDigit) || b[6] != '.' || !is(b[7], isDigit) {
		return BadVersion
	}
	if b[5] != '1' || b[7] > '1' {
		return UnknownVersion
	}
	h.first.minor = b[7] - '0'
	return 0
}

func (h *Head) readStatusLine(begin, end int) Rule {
	const version, whole = len("HTTP/1.1"), len("HTTP/1.1 200")
	line := h.b[begin:end]
	if len(line) < whole || line[version] != ' ' {
		return BadStatusLine
	}
	if rule := h.readVersion(line[:version]); rule != 0 {
		return rule
	}
	digits := line[version+1 : whole]
	if !all(digits, isDigit) || digits[0] == '0' {
		return BadStatus
	}
	h.first.status = uint16(digits[0]-'0')*100 + uint16(digits[1]-'0')*10 + uint16(digits[2]-'0')
	if len(line) > whole {
		if line[whole] != ' ' {
			return BadStatus
		}
		h.first.reason = span{uint32(begin + whole + 1), uint32(end)}
		return judgeValue(line[whole+1:])
	}
	return 0
}

// readField reads a line of the form name: value.
func (h *Head) readField(begin, end int) Rule {
	line := h.b[begin:end]
	i := 0
	for i < len(line) && is(line[i], isTokenByte) {
		i++
	}
	if i == 0 || i == len(line) || line[i] != ':' {
		return judgeName(line, i)
	}
	from, to := i+1, len(line)
	for from < to && (line[from] == ' ' || line[from] == '\t') {
		from++
	}
	for to > from && (line[to-1] == ' ' || line[to-1] == '\t') {
		to--
	}
	if rule := judgeValue(line[from:to]); rule != 0 {
		return rule
	}
	id := idOf(line[:i])
	h.known |= 1 << id
	h.fields = append(h.fields, field{
		name:  span{uint32(begin), uint32(begin + i)},
		value: span{uint32(begin + from), uint32(begin + to)},
		id:    id,
	})
	return 0
}

// judgeName returns what is wrong with a line whose first i bytes are a token, and no name.
func judgeName(line []byte, i int) Rule {
	colon := bytes.IndexByte(line, ':')
	switch {
	case line[0] == ' ' || line[0] == '\t':
		return FoldedLine
	case colon < 0:
		return NoColon
	case colon == 0:
		return NoName
	case (line[i] == ' ' || line[i] == '\t') && len(bytes.Trim(line[i:colon], " \t")) == 0:
		return SpaceBeforeColon
	case line[i] == '\r':
		return BareCR
	default:
		return BadName
	}
}

// judgeHost holds a request to one host (RFC 9112, sections 3.2 and 3.2.2).
func (h *Head) judgeHost() Rule {
	i := h.Find(Host)
	switch {
	case i < 0 && h.first.minor > 0:
		return NoHost
	case i >= 0 && h.next(Host, i+1) >= 0:
		return ManyHosts
	case i >= 0 && !isHost(h.value(i)):
		return BadHost
	}
	if authority := authorityOf(h.target()); authority != nil {
		switch {
		case !isHost(authority):
			return BadHost
		case i >= 0 && !bytes.EqualFold(authority, h.value(i)):
			return OtherHost
		}
	}
	return 0
}

func (h *Head) at(s span) []byte { return h.b[s.begin:s.end:s.end] }

// Method returns a request's method.
func (h *Head) Method() []byte { return h.at(h.first.method) }

// target returns a request's target, as it came.
func (h *Head) target() []byte { return h.at(h.first.target) }

// Status returns an answer's status.
func (h *Head) Status() int { return int(h.first.status) }

// Minor returns x of the version HTTP/1.x: 0 or 1.
func (h *Head) Minor() int { return int(h.first.minor) }

// Len returns how many fields there are.
func (h *Head) Len() int { return len(h.fields) }

// ID returns the id of field i.
func (h *Head) ID(i int) ID { return h.fields[i].id }

// value returns the value of field i.
func (h *Head) value(i int) []byte { return h.at(h.fields[i].value) }

// Text returns a copy of the head, for NameIn and ValueIn: strings that outlive its bytes.
func (h *Head) Text() string { return string(h.b) }

// TargetIn returns a request's target as a part of what Text has returned.
func (h *Head) TargetIn(text string) string {
	return text[h.first.target.begin:h.first.target.end]
}

// AuthorityIn returns the host, with its port, that a request is for: of an absolute target, of
// Host, or "". It is a part of what Text has returned where it is Host's.
func (h *Head) AuthorityIn(text string) string {
	if authority := authorityOf(h.target()); authority != nil {
		return string(authority)
	}
	if i := h.Find(Host); i >= 0 {
		return h.ValueIn(text, i)
	}
	return ""
}

// NameIn returns the name of field i as a part of what Text has returned.
func (h *Head) NameIn(text string, i int) string {
	s := h.fields[i].name
	return text[s.begin:s.end]
}

// ValueIn returns the value of field i as a part of what Text has returned.
func (h *Head) ValueIn(text string, i int) string {
	s := h.fields[i].value
	return text[s.begin:s.end]
}

// StatusIn returns an answer's status and its reason phrase as a part of what Text has returned.
func (h *Head) StatusIn(text string) string {
	const begin, end = uint32(len("HTTP/1.1 ")), uint32(len("HTTP/1.1 200"))
	return text[begin:max(end, h.first.reason.end)]
}

// Find returns the first field of a name, which is not Other; -1: there is none.
func (h *Head) Find(id ID) int { return h.next(id, 0) }

// next returns the first field of a name from i on.
func (h *Head) next(id ID, i int) int {
	if h.known&(1<<id) == 0 {
		return -1
	}
	for ; i < len(h.fields); i++ {
		if h.fields[i].id == id {
			return i
		}
	}
	return -1
}

// HasToken reports whether an element of the fields of a name, which are lists of tokens, is
// token. Only letters have a case, and it does not count.
func (h *Head) HasToken(id ID, token string) bool {
	for i := h.Find(id); i >= 0; i = h.next(id, i+1) {
		for rest := h.value(i); len(rest) > 0; {
			var element []byte
			element, rest, _ = bytes.Cut(rest, []byte{','})
			if equalFold(trimSpace(element), token) {
				return true
			}
		}
	}
	return false
}

// clone returns h with a copy of its bytes: it outlives the buffer they were read into.
func (h *Head) clone() *Head {
	c := *h
	c.b, c.fields = bytes.Clone(h.b), slices.Clone(h.fields)
	return &c
}
