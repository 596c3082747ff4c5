package views

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Checkpoint is the digest of all entries that were applied up to an index.
type Checkpoint struct {
	Index  uint64 `json:"index"`
	Digest []byte `json:"digest"`
}

// checkpointsKept bounds a digests. Who is further behind is compared when it has
// caught up.
const checkpointsKept = 1024

// digests are the newest checkpoints, in order of their indices. The zero value is that
// of an empty log.
type digests struct{ kept []Checkpoint }

// add takes in the next entry.
func (d *digests) add(index uint64, data []byte) {
	h := sha256.New()
	h.Write(d.newest().Digest)
	h.Write(binary.BigEndian.AppendUint64(nil, index))
	h.Write(data)
	if len(d.kept) == checkpointsKept {
		d.kept = slices.Clone(d.kept[checkpointsKept/2:])
	}
	d.kept = append(d.kept, Checkpoint{index, h.Sum(nil)})
}

func (d *digests) newest() Checkpoint {
	if len(d.kept) == 0 {
		return Checkpoint{}
	}
	return d.kept[len(d.kept)-1]
}

// compare reports whether the entries up to c are those that were applied here, and
// whether that can be told.
func (d *digests) compare(c Checkpoint) (same, known bool) {
	if len(d.kept) == 0 || c.Index < d.kept[0].Index || c.Index > d.newest().Index {
		return false, false
	}
	i, found := slices.BinarySearchFunc(d.kept, c.Index, func(have Checkpoint, index uint64) int {
		return int(int64(have.Index) - int64(index))
	})
	return found && slices.Equal(d.kept[i].Digest, c.Digest), true
}
