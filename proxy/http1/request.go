package http1

import (
	"io"
	"net/textproto"
	"net/url"
	"strings"
)

// Request is a request apart from the bytes of its head. It may be filled in again when nobody
// uses it.
type Request struct {
	Method string
	Target string  // as it came
	URL    url.URL // the same, read
	Host   string  // of an absolute target, or of Host
	Proto  string  // such as HTTP/1.1
	Remote string  // the client's address, with the port
	Fields Fields  // of its head
	Ahead  int     // bytes of memory for what has come behind its head; 0: nothing has

	Major, Minor uint8 // of its version
	Secure       bool  // it came over TLS
	Close        bool  // its client sends no other one over the connection
	Chunked      bool  // the body comes in chunks

	Body   io.ReadCloser // nil: there is none
	Length int64         // of the body; -1: it is not known
	// Announced are the names of the trailer's fields that the head has; they may stand there.
	// Trailer is filled in when Body has been read to its end.
	Announced []string
	Trailer   Fields
}

// Fill fills r in with what h and its framing say, but for Body and what is known of the
// connection. The error is one of net/url: the target is none.
func (r *Request) Fill(h *Head, f Framing) error {
	text, room := h.Text(), r.Fields[:0]
	if cap(room) < h.Len() || cap(room) > mostKept {
		room = make(Fields, 0, h.Len())
	}
	*r = Request{
		Method: methodOf(h), Target: h.TargetIn(text), Host: h.AuthorityIn(text),
		Proto: "HTTP/1.1", Major: 1, Minor: uint8(h.Minor()), Close: !f.Persists,
	}
	if h.Minor() == 0 {
		r.Proto = "HTTP/1.0"
	}
	switch f.Kind {
	case Chunked:
		r.Length, r.Chunked = -1, true
		r.Announced = h.Announced()
	case Length:
		r.Length = f.Length
	case None, UntilClose, Tunnel:
	}
	r.Fields = h.AppendFields(room, text)
	return r.readTarget()
}

// readTarget fills in r.URL. A plain path is what it is; anything else is read by net/url.
func (r *Request) readTarget() error {
	path, query, asks := strings.Cut(r.Target, "?")
	if isPlainPath(path) {
		r.URL = url.URL{Path: path, RawQuery: query, ForceQuery: asks && query == ""}
		return nil
	}
	target := r.Target
	bare := r.Method == "CONNECT" && !strings.HasPrefix(target, "/")
	if bare {
		target = "http://" + target
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return err
	}
	if r.URL = *u; bare {
		r.URL.Scheme = ""
	}
	return nil
}

// isPlainPath reports whether net/url neither decodes nor encodes a byte of an absolute path.
func isPlainPath(path string) bool {
	for i := range len(path) {
		c := path[i]
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && strings.IndexByte("/-_.~$&+,:;=@", c) < 0 {
			return false
		}
	}
	return strings.HasPrefix(path, "/")
}

// AtLeast reports whether the version is major.minor or a later one.
func (r *Request) AtLeast(major, minor uint8) bool {
	return r.Major > major || r.Major == major && r.Minor >= minor
}

func methodOf(h *Head) string {
	switch m := h.Method(); string(m) {
	case "GET":
		return "GET"
	case "HEAD":
		return "HEAD"
	case "POST":
		return "POST"
	case "PUT":
		return "PUT"
	default:
		return string(m)
	}
}

// AppendFields appends the fields of h, whose Text is given.
func (h *Head) AppendFields(to Fields, text string) Fields {
	for i := range h.Len() {
		f := Field{ID: h.ID(i), Value: h.ValueIn(text, i)}
		if f.Name = f.ID.String(); f.Name == "" {
			f.Name = textproto.CanonicalMIMEHeaderKey(h.NameIn(text, i))
		}
		to = append(to, f)
	}
	return to
}

// Announced returns the names of the trailer that h announces, as net/http spells them. Those by
// which a message is framed or routed are left out.
func (h *Head) Announced() []string {
	var names []string
	for i := h.Find(Trailer); i >= 0; i = h.next(Trailer, i+1) {
		for name := range strings.SplitSeq(string(h.value(i)), ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if name != "" && !idOf(name).isFraming() {
				names = append(names, name)
			}
		}
	}
	return names
}
