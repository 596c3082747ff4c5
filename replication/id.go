package replication

import (
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"github.com/kgate/kgate/kmutex"
)

// idSecret is the number of random bytes in a ticket's id. The id is all it takes to use the
// ticket.
const idSecret = 16

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID returns the id of a ticket that owner takes in. The secret must be
// random and used once.
func NewID(secret [idSecret]byte, owner kmutex.Node) string {
	return idEncoding.EncodeToString(secret[:]) + "-" + strconv.FormatUint(uint64(owner), 36)
}

// ParseID returns the node that took the ticket in. That node, or its successor after its loss,
// knows the ticket. An id has one spelling; any other string is an error.
func ParseID(id string) (owner kmutex.Node, err error) {
	text, number, _ := strings.Cut(id, "-")
	var secret [idSecret]byte
	if len(text) != idEncoding.EncodedLen(idSecret) {
		return 0, errID(id)
	}
	if _, err := idEncoding.Decode(secret[:], []byte(text)); err != nil {
		return 0, errID(id)
	}
	n, err := strconv.ParseUint(number, 36, 64)
	if err != nil || n == 0 || NewID(secret, kmutex.Node(n)) != id {
		return 0, errID(id)
	}
	return kmutex.Node(n), nil
}

func errID(id string) error { return fmt.Errorf("%w: no ticket has the id %.50q", errInvalid, id) }
