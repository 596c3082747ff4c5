package transport

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kgate/kgate/kmutex"
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
	// StreamPools carries what pools need that enter a new epoch.
	StreamPools

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
	case StreamPools:
		return "pools"
	default:
		return fmt.Sprintf("stream(%d)", uint8(k))
	}
}

const (
	magic        = "kgat"
	preambleSize = 8
	helloSize    = 24
)

// status is the answer to a preamble.
type status uint8

const (
	statusOK status = 1 + iota
	statusVersion
	statusKind
	statusBusy
	statusNode
	statusDirection
	statusSequence
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
	statusNode:      "its view does not have both nodes (yet)",
	statusDirection: "it has a connection for this link, or is making one",
	statusSequence:  "it lacks messages that were sent before",

	statusCertificate: "this gateway's certificate does not have its name in the agreed view",
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
		return 0, fmt.Errorf("%w: %w", errPreamble, errTruncated)
	case string(b[:len(magic)]) != magic:
		return 0, errMagic
	case b[4] != protocolVersion:
		return 0, wrongVersion(b[4])
	case b[6] != 0 || b[7] != 0:
		return 0, fmt.Errorf("%w: %w", errPreamble, errRange)
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

// hello opens a link, from both ends.
type hello struct {
	from, to kmutex.Node
	// received is the number of the last message that from has from to.
	received uint64
}

func (h hello) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.from))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.to))
	return binary.BigEndian.AppendUint64(dst, h.received)
}

func decodeHello(b []byte) (hello, error) {
	if len(b) != helloSize {
		return hello{}, fmt.Errorf("%w: %w", errPreamble, errTruncated)
	}
	h := hello{
		from:     kmutex.Node(binary.BigEndian.Uint64(b)),
		to:       kmutex.Node(binary.BigEndian.Uint64(b[8:])),
		received: binary.BigEndian.Uint64(b[16:]),
	}
	if h.from == 0 || h.to == 0 || h.from == h.to {
		return hello{}, fmt.Errorf("%w: hello from node %d to node %d", errPreamble, h.from, h.to)
	}
	return h, nil
}
