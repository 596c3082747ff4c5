package http1

import "time"

// Answer is a whole answer of the gateway's own.
type Answer struct {
	Status int
	Fields Fields
	Body   []byte
	// Close says that the connection ends behind it.
	Close bool
	// NoBody leaves the body out: the answer is one to HEAD.
	NoBody bool
}

// Append appends the answer, with Date and its length. The error is a Rule: a field cannot be
// written.
func (a *Answer) Append(dst []byte, now time.Time) ([]byte, error) {
	from := len(dst)
	dst = AppendDate(AppendStatusLine(dst, a.Status), now)
	var err error
	for _, f := range a.Fields {
		if dst, err = AppendField(dst, f.Name, f.Value); err != nil {
			return dst[:from], err
		}
	}
	if a.Close {
		dst = append(dst, "Connection: close\r\n"...)
	}
	bare := a.Status < 200 || a.Status == 204 || a.Status == 304
	dst = append(Framing{Sized: !bare, Length: int64(len(a.Body))}.Append(dst), lineBreak...)
	if bare || a.NoBody {
		return dst, nil
	}
	return append(dst, a.Body...), nil
}
