package transport

import (
	"errors"
	"fmt"

	"github.com/kgate/kgate/internal/transport/wire"
)

// kindLink is what the preamble of a connection between two processes says that it is.
const kindLink = 1

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
	statusTwin

	statusEnd
)

// TwinText is in the error of an end that is refused because a gateway of its name, at another
// address, is connected.
const TwinText = "another gateway has this name"

// statusText says what a status means, to the end that was refused.
var statusText = [statusEnd]string{
	statusOK:        "ok",
	statusVersion:   "it speaks another version of the protocol",
	statusKind:      "it does not accept this kind of connection",
	statusBusy:      "it has too many connections",
	statusName:      "it has another name",
	statusDirection: "it has a connection to this gateway, or is making one",

	statusCertificate: "this gateway's certificate does not have its name",
	statusHello:       "it cannot make sense of the hello",
	statusTwin:        TwinText,
}

// Errors of the preamble's decoder.
var (
	errMagic    = errors.New("not a kgate peer")
	errPreamble = errors.New("bad preamble")
)

func appendPreamble(dst []byte) []byte { return appendOpening(dst, kindLink) }

func answerOf(s status) []byte { return appendOpening(nil, byte(s)) }

// appendOpening appends what a preamble and an answer have in common.
func appendOpening(dst []byte, what byte) []byte {
	dst = append(dst, magic...)
	return append(dst, wire.Version, what, 0, 0)
}

// decodeOpening checks magic, version and the unused bytes. After a foreign
// version nothing is known about the rest.
func decodeOpening(b []byte) (what byte, err error) {
	switch {
	case len(b) != preambleSize:
		return 0, fmt.Errorf("%w: %w", errPreamble, wire.ErrTruncated)
	case string(b[:len(magic)]) != magic:
		return 0, errMagic
	case b[4] != wire.Version:
		return 0, wrongVersion(b[4])
	case b[6] != 0 || b[7] != 0:
		return 0, fmt.Errorf("%w: %w", errPreamble, wire.ErrRange)
	}
	return b[5], nil
}

func checkPreamble(b []byte) error {
	what, err := decodeOpening(b)
	if err == nil && what != kindLink {
		err = fmt.Errorf("%w: kind %d", errPreamble, what)
	}
	return err
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
