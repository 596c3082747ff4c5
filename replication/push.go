package replication

import (
	"fmt"

	"github.com/kgate/kgate/kmutex"
)

// maxPush bounds the JSON of one push, in bytes.
const maxPush = 1 << 20

// Push is what an owner sends to one of its successors.
type Push struct {
	// Seq numbers the pushes of one owner: a replica drops a push that is older than one it has
	// taken in.
	Seq   uint64      `json:"seq"`
	Owner kmutex.Node `json:"owner"`
	// Retire: the replica is no longer needed; there is no Delta.
	Retire bool   `json:"retire,omitempty"`
	Delta  *Delta `json:"delta,omitempty"`
}

// Ack answers a push, whether it could be taken in or not.
type Ack struct {
	Seq uint64 `json:"seq"`
	Progress
}

// Validate returns why no correct gateway sends p.
func (p *Push) Validate() error {
	if p.Owner == 0 || p.Seq == 0 || p.Retire != (p.Delta == nil) || p.Delta != nil && p.Delta.Owner != p.Owner {
		return fmt.Errorf("%w: push %d of node %d", errInvalid, p.Seq, p.Owner)
	}
	if p.Delta == nil {
		return nil
	}
	return p.Delta.Validate()
}
