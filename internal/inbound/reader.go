package inbound

import (
	"bufio"
	"errors"
	"io"
)

// errTooLong means that more was asked for than a Reader keeps.
var errTooLong = errors.New("the beginning is too long")

// Reader reads the beginning of a stream and keeps it, so that somebody else can still read
// all of it. A decoder that takes single bytes back reads no further
// than the end of a value.
type Reader struct {
	In   *bufio.Reader
	Most int // length of Kept
	Kept []byte
}

var _ io.ByteScanner = (*Reader)(nil)

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(r.Kept)+len(p) > r.Most {
		return 0, errTooLong
	}
	n, err := r.In.Read(p)
	r.Kept = append(r.Kept, p[:n]...)
	return n, err
}

// ReadByte implements io.ByteReader.
func (r *Reader) ReadByte() (byte, error) {
	if len(r.Kept) >= r.Most {
		return 0, errTooLong
	}
	b, err := r.In.ReadByte()
	if err == nil {
		r.Kept = append(r.Kept, b)
	}
	return b, err
}

// UnreadByte implements io.ByteScanner.
func (r *Reader) UnreadByte() error {
	if err := r.In.UnreadByte(); err != nil {
		return err
	}
	r.Kept = r.Kept[:len(r.Kept)-1]
	return nil
}
