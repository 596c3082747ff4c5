package transport

import (
	"errors"
	"fmt"

	"github.com/kgate/kgate/internal/transport/wire"
)

// StreamKind tells what a connection to the peer port is for.
type StreamKind uint8

// The kinds of streams. Links are a kind of their own, not handed out.
const (
	streamLink StreamKind = 1 + iota
	// StreamRaft carries raft's own protocol.
	StreamRaft
	// StreamControl carries the API between gateways.
	StreamControl

	streamEnd
)

// String returns the kind's name.
func (k StreamKind) String() string {
	switch k {
	case streamLink:
		return "link"
	case StreamRaft:
		return "raft"
	case StreamControl:
		return "control"
	default:
		return fmt.Sprintf("stream(%d)", uint8(k))
	}
}

const (
	magic        = "kgat"
	preambleSize = 8
)

// status is the answer to a preamble.
type status uint8

const (
	statusOK status = 1 + iota
	statusVersion
	statusKind
	statusBusy
	statusName
	statusDirection
	statusCertificate
	statusHello

	statusEnd
)

// statusText says what a status means, to the end that was refused.
var statusText = [statusEnd]string{
	statusOK:        "ok",
	statusVersion:   "it speaks another version of the protocol",
	statusKind:      "it does not accept this kind of stream",
	statusBusy:      "it has too many streams waiting",
	statusName:      "it has another name",
	statusDirection: "it has a connection to this gateway, or is making one",

	statusCertificate: "this gateway's certificate does not have its name",
	statusHello:       "it cannot make sense of the hello",
}

// Errors of the preamble's decoder.
var (
	errMagic    = errors.New("not a kgate peer")
	errPreamble = errors.New("bad preamble")
)

func appendPreamble(dst []byte, kind StreamKind) []byte {
	return appendOpening(dst, byte(kind))
}

func answerOf(s status) []byte { return appendOpening(nil, byte(s)) }

// appendOpening appends what a preamble and an answer have in common.
func appendOpening(dst []byte, what byte) []byte {
	dst = append(dst, magic...)
	return append(dst, protocolVersion, what, 0, 0)
}

// decodeOpening checks magic, version and the unused bytes. After a foreign
// version nothing is known about the rest.
func decodeOpening(b []byte) (what byte, err error) {
	switch {
	case len(b) != preambleSize:
		return 0, fmt.Errorf("%w: %w", errPreamble, wire.ErrTruncated)
	case string(b[:len(magic)]) != magic:
		return 0, errMagic
	case b[4] != protocolVersion:
		return 0, wrongVersion(b[4])
	case b[6] != 0 || b[7] != 0:
		return 0, fmt.Errorf("%w: %w", errPreamble, wire.ErrRange)
	}
	return b[5], nil
}

func decodePreamble(b []byte) (StreamKind, error) {
	what, err := decodeOpening(b)
	if err != nil {
		return 0, err
	}
	kind := StreamKind(what)
	if kind == 0 || kind >= streamEnd {
		return 0, fmt.Errorf("%w: kind %d", errPreamble, what)
	}
	return kind, nil
}

// decodeAnswer returns nil if the other end accepts.
func decodeAnswer(b []byte) error {
	what, err := decodeOpening(b)
	if err != nil {
		return err
	}
	s := status(what)
	switch {
	case s == 0 || s >= statusEnd:
		return fmt.Errorf("%w: status %d", errPreamble, what)
	case s != statusOK:
		return fmt.Errorf("%w: %s", errRefused, statusText[s])
	}
	return nil
}
