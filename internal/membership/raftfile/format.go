package raftfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Position is a place in the log.
type Position struct{ Index, Term uint64 }

// Before reports whether a log that ends at p lacks something of one that ends at q:
// raft's own order of logs.
func (p Position) Before(q Position) bool {
	return p.Term < q.Term || p.Term == q.Term && p.Index < q.Index
}

// entry is the stored form of raft.Log.
type entry struct {
	Index      uint64       `json:"i"`
	Term       uint64       `json:"t"`
	Type       raft.LogType `json:"k"`
	Data       []byte       `json:"d,omitempty"`
	Extensions []byte       `json:"x,omitempty"`
	AppendedAt time.Time    `json:"a"`
}

// snapshot is a stored snapshot of the state machine.
type snapshot struct {
	Meta raft.SnapshotMeta `json:"meta"`
	Data []byte            `json:"data"`
}

// record is one change; its parts are applied in the order of the fields.
type record struct {
	Note     json.RawMessage   `json:"note,omitempty"`
	Stable   map[string][]byte `json:"stable,omitempty"`
	Snapshot *snapshot         `json:"snapshot,omitempty"`
	Cut      *[2]uint64        `json:"cut,omitempty"` // indices, both included
	Entries  []entry           `json:"entries,omitempty"`
}

// decodeRecord reads the JSON of a record, strictly.
func decodeRecord(body []byte) (r record, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, errors.New("data behind its value")
	}
	return r, nil
}

// state is what the records amount to.
type state struct {
	note   json.RawMessage
	stable map[string][]byte
	snap   *snapshot
	logs   []raft.Log // without gaps
}

func (s *state) first() uint64 {
	if len(s.logs) == 0 {
		return 0
	}
	return s.logs[0].Index
}

func (s *state) last() Position {
	if len(s.logs) == 0 {
		return Position{}
	}
	l := s.logs[len(s.logs)-1]
	return Position{l.Index, l.Term}
}

// apply changes the state; it leaves the slices alone that it was given before.
func (s *state) apply(r record) error {
	if r.Note != nil {
		s.note = r.Note
	}
	for key, value := range r.Stable {
		s.stable[key] = value
	}
	if r.Snapshot != nil {
		s.snap = r.Snapshot
	}
	if r.Cut != nil {
		if err := s.cut(r.Cut[0], r.Cut[1]); err != nil {
			return err
		}
	}
	for _, e := range r.Entries {
		if last := s.last().Index; last != 0 && e.Index != last+1 {
			return fmt.Errorf("entry %d follows entry %d", e.Index, last)
		}
		s.logs = append(s.logs, raft.Log(e))
	}
	return nil
}

func (s *state) cut(lowest, highest uint64) error {
	first, last := s.first(), s.last().Index
	lowest, highest = max(lowest, first), min(highest, last)
	switch {
	case len(s.logs) == 0 || lowest > highest:
	case lowest == first:
		s.logs = slices.Clone(s.logs[highest+1-first:])
	case highest == last:
		s.logs = slices.Clone(s.logs[:lowest-first])
	default:
		return fmt.Errorf("entries %d to %d are in the middle of %d to %d", lowest, highest, first, last)
	}
	return nil
}

// whole returns the state as one record.
func (s *state) whole() record {
	r := record{Note: s.note, Stable: s.stable, Snapshot: s.snap}
	for _, l := range s.logs {
		r.Entries = append(r.Entries, entry(l))
	}
	return r
}
