package transport

import (
	"errors"
	"fmt"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

const (
	// maxPool bounds the length of a pool's name.
	maxPool = 64
	// MaxTag bounds the length of a message's tag.
	MaxTag = 1 << 10
	// maxTokens bounds k.
	maxTokens = kmutex.MaxK
	// maxResting bounds the nodes that a message names.
	maxResting = 1 << 12
	// maxClasses bounds the classes of a pool's tokens.
	maxClasses = 1 << 10
)

var errVersion = errors.New("another wire format")

// wrongVersion says which wire format the other end speaks.
func wrongVersion(theirs byte) error {
	return fmt.Errorf("%w: %d, this gateway speaks %d; install the same version of kgate on all gateways", errVersion, theirs, wire.Version)
}

// appendMessage appends a pool's message to dst. On error dst comes back unchanged. Whether the other end
// accepts it is for its sender to know: see [TestMachinesUnderstandEachOther].
func appendMessage(dst []byte, pool string, m *kmutex.Message) ([]byte, error) {
	if pool == "" || len(pool) > maxPool {
		return dst, fmt.Errorf("%w: the pool's name has %d bytes, not 1 to %d", errMessage, len(pool), maxPool)
	}
	dst = append(dst, byte(len(pool)))
	dst = append(dst, pool...)
	return appendFields(dst, m), nil
}

// decodeMessage decodes what appendMessage has made into m. It keeps nothing of data.
func decodeMessage(data []byte, pools names, m *kmutex.Message) (pool string, err error) {
	c := cursor{wire.Cursor{Rest: data}}
	pool = pools.get(c.Name(maxPool))
	*m = kmutex.Message{}
	c.fields(m)
	if len(c.Rest) > 0 {
		c.Fail(wire.ErrTrailing)
	}
	if c.Err == nil {
		c.Err = checkMessage(m)
	}
	if c.Err != nil {
		return "", fmt.Errorf("%w: message: %w", wire.ErrFrame, c.Err)
	}
	return pool, nil
}

// cursor reads a message.
type cursor struct{ wire.Cursor }

// names keeps one copy of each pool's name, so that decoding a message does
// not allocate. It is bounded, since names come from the other end.
type names map[string]string

const maxNames = 1024

func (n names) get(b []byte) string {
	if s, ok := n[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(n) < maxNames {
		n[s] = s
	}
	return s
}
