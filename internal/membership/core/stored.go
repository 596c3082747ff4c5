package core

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Stored is what a process keeps: on disk, or for as long as it runs. The zero value is
// not good for use.
type Stored struct {
	note note
	log  *raft.MemoryStorage
	snap *pb.Snapshot // the newest that is on disk; nil: none
}

// note says whose the log is.
type note struct {
	ID       ID        `json:"id"`
	Name     string    `json:"name"`
	Cluster  string    `json:"cluster,omitempty"`
	Founders []Founder `json:"founders,omitempty"`
}

// NewStored returns what a process keeps that has kept nothing yet. The id is used if nothing
// is loaded.
func NewStored(id ID, name string) *Stored {
	return &Stored{note: note{ID: id, Name: name}, log: raft.NewMemoryStorage()}
}

// ID returns the process's id.
func (s *Stored) ID() ID { return s.note.ID }

// Kinds of records: their first byte.
const (
	recordNote    = 'n'
	recordRaft    = 'r' // what raft wants written
	recordCompact = 'c' // a snapshot in place of entries
)

// trailing is how many entries are kept behind a snapshot, for those that are a little
// behind, and compactAfter how many make the next one.
const (
	trailing     = 256
	compactAfter = 256
)

var errRecord = errors.New("record")

// Load takes in the next record that was written.
func (s *Stored) Load(record []byte) error {
	if len(record) == 0 {
		return fmt.Errorf("%w: it is empty", errRecord)
	}
	if record[0] == recordNote {
		if err := json.Unmarshal(record[1:], &s.note); err != nil {
			return fmt.Errorf("%w: %w", errRecord, err)
		}
		return nil
	}
	m := new(pb.Message)
	if err := proto.Unmarshal(record[1:], m); err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	switch record[0] {
	case recordRaft:
		return s.append(m)
	case recordCompact:
		return s.compact(m.GetSnapshot())
	default:
		return fmt.Errorf("%w: kind %q", errRecord, record[0])
	}
}

// Whole returns all that is kept as records.
func (s *Stored) Whole() ([][]byte, error) {
	noted, err := encodeNote(s.note)
	if err != nil {
		return nil, err
	}
	hard, _, err := s.log.InitialState()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	if hard == nil {
		hard = &pb.HardState{}
	}
	first, _ := s.log.FirstIndex() // never fails
	last, _ := s.log.LastIndex()   // never fails
	m := &pb.Message{Snapshot: s.snap, Term: hard.Term, Vote: hard.Vote, Commit: hard.Commit}
	if last >= first {
		if m.Entries, err = s.log.Entries(first, last+1, noLimit); err != nil {
			return nil, fmt.Errorf("%w: %w", errRecord, err)
		}
	}
	whole, err := encodeRecord(recordRaft, m)
	return [][]byte{noted, whole}, err
}

const noLimit = 1 << 62

func encodeNote(n note) ([]byte, error) {
	data, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return append([]byte{recordNote}, data...), nil
}

func encodeRecord(kind byte, m *pb.Message) ([]byte, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{kind}, m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return data, nil
}

// append takes in what raft wants written.
func (s *Stored) append(m *pb.Message) error {
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		if err := s.log.ApplySnapshot(m.GetSnapshot()); err != nil && !errors.Is(err, raft.ErrSnapOutOfDate) {
			return fmt.Errorf("%w: %w", errRecord, err)
		}
		s.snap = m.GetSnapshot()
	}
	if err := s.log.Append(m.GetEntries()); err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	hard := &pb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	if raft.IsEmptyHardState(hard) {
		return nil
	}
	if err := s.log.SetHardState(hard); err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	return nil
}

// compact puts a snapshot in the place of the entries before it.
func (s *Stored) compact(snap *pb.Snapshot) error {
	at := snap.GetMetadata().GetIndex()
	if _, err := s.log.CreateSnapshot(at, snap.GetMetadata().GetConfState(), snap.GetData()); err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	s.snap = snap
	if at <= trailing {
		return nil
	}
	if err := s.log.Compact(at - trailing); err != nil && !errors.Is(err, raft.ErrCompacted) {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	return nil
}

// blank reports that nothing of any log is kept.
func (s *Stored) blank() bool {
	last, _ := s.log.LastIndex() // never fails
	return last == 0
}
