package raftfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/hashicorp/raft"
)

// The keys of raft's term and vote.
const (
	keyTerm          = "CurrentTerm"
	KeyVoteTerm      = "LastVoteTerm"
	KeyVoteCandidate = "LastVoteCand" // an address
)

// ErrContradiction means that raft was about to remove entries that are known to be
// agreed on: the others have lost them.
var ErrContradiction = errors.New("the other gateways have lost what was agreed on")

// IsMonotonic implements raft.MonotonicLogStore: there are no gaps.
func (f *File) IsMonotonic() bool { return true }

// FirstIndex returns the index of the oldest entry, 0 if there is none.
func (f *File) FirstIndex() (uint64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state.first(), nil
}

// LastIndex returns the index of the newest entry, 0 if there is none.
func (f *File) LastIndex() (uint64, error) { return f.Last().Index, nil }

// Last returns the position of the newest entry.
func (f *File) Last() Position {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state.last()
}

// GetLog reads one entry, or fails with raft.ErrLogNotFound.
func (f *File) GetLog(index uint64, into *raft.Log) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	first := f.state.first()
	if len(f.state.logs) == 0 || index < first || index > f.state.last().Index {
		return raft.ErrLogNotFound
	}
	*into = f.state.logs[index-first]
	return nil
}

// StoreLog writes one entry.
func (f *File) StoreLog(log *raft.Log) error { return f.StoreLogs([]*raft.Log{log}) }

// StoreLogs writes entries in one record: all or none.
func (f *File) StoreLogs(logs []*raft.Log) error {
	f.writing.Lock()
	defer f.done()
	if len(logs) == 0 {
		return nil
	}
	last := f.Last().Index
	entries := make([]entry, len(logs))
	for i, l := range logs {
		if last != 0 && l.Index != last+1 {
			return fmt.Errorf("raftfile: entry %d cannot follow entry %d", l.Index, last)
		}
		last, entries[i] = l.Index, entry(*l)
	}
	return f.writeWithTerm(record{Entries: entries}, keyTerm)
}

// DeleteRange removes the entries from lowest to highest, both included. It fails with
// ErrContradiction rather than take back what was agreed on.
func (f *File) DeleteRange(lowest, highest uint64) error {
	f.writing.Lock()
	defer f.done()
	f.mu.RLock()
	first, last, snap := f.state.first(), f.state.last().Index, f.state.snap
	f.mu.RUnlock()
	if last == 0 || lowest > last || highest < first {
		return nil
	}
	covered := snap != nil && snap.Meta.Index >= f.Committed().Index && lowest <= first
	if highest >= last && lowest <= f.Committed().Index && !covered {
		return f.fail(fmt.Errorf("%w: entry %d was agreed on, and the leader has another from entry %d on",
			ErrContradiction, f.Committed().Index, lowest))
	}
	return f.write(record{Cut: &[2]uint64{lowest, highest}})
}

// Set writes a value of raft's, and what waits for Flush.
func (f *File) Set(key, value []byte) error {
	f.writing.Lock()
	defer f.done()
	f.mu.RLock()
	have, known := f.state.stable[string(key)]
	same := known && bytes.Equal(have, value) && len(f.pending) == 0
	f.mu.RUnlock()
	if same {
		return f.journal.Broken()
	}
	return f.writeWithTerm(record{Stable: map[string][]byte{string(key): value}}, keyTerm, KeyVoteTerm)
}

// Get reads a value of raft's; nil if there is none.
func (f *File) Get(key []byte) ([]byte, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if value, ok := f.pending[string(key)]; ok {
		return value, nil
	}
	return f.state.stable[string(key)], nil
}

// SetUint64 keeps a number of raft's. A term and the term of a vote wait for Flush, or
// for the vote; other numbers are written.
func (f *File) SetUint64(key []byte, value uint64) error {
	data := binary.LittleEndian.AppendUint64(nil, value)
	if k := string(key); k != keyTerm && k != KeyVoteTerm {
		return f.Set(key, data)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes.Equal(f.state.stable[string(key)], data) {
		delete(f.pending, string(key))
	} else {
		f.pending[string(key)] = data
	}
	return nil
}

// GetUint64 reads a number of raft's; 0 if there is none.
func (f *File) GetUint64(key []byte) (uint64, error) {
	value, err := f.Get(key)
	if err != nil || len(value) == 0 {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("raftfile: %q holds %d bytes, not a number", key, len(value))
	}
	return binary.LittleEndian.Uint64(value), nil
}

// Flush writes a term that waits. Raft asks that a term is on disk before anything is
// said in it: call Flush before each message to another server. The term of a vote
// waits on, since raft gives the vote only when it has written the candidate.
func (f *File) Flush() error {
	f.mu.RLock()
	_, waits := f.pending[keyTerm]
	f.mu.RUnlock()
	if !waits {
		return nil
	}
	f.writing.Lock()
	defer f.done()
	return f.writeWithTerm(record{}, keyTerm)
}

// VoteForSelf writes the vote of a candidate for itself in the present term, and the
// term, in one record. Raft asks others for their votes at the same time as it votes for
// itself; without this, term and vote would be two writes. It does no more than Flush
// if term is not the present one.
func (f *File) VoteForSelf(term uint64, candidate []byte) error {
	f.writing.Lock()
	defer f.done()
	if now, err := f.GetUint64([]byte(keyTerm)); err != nil || now != term {
		return errors.Join(err, f.writeWithTerm(record{}, keyTerm))
	}
	f.mu.RLock()
	same := bytes.Equal(f.state.stable[KeyVoteTerm], f.number(keyTerm)) && bytes.Equal(f.state.stable[KeyVoteCandidate], candidate)
	r := record{Stable: map[string][]byte{KeyVoteTerm: f.number(keyTerm), KeyVoteCandidate: candidate}}
	f.mu.RUnlock()
	if same {
		r = record{}
	}
	return f.writeWithTerm(r, keyTerm)
}

// number returns a value that waits or is written. The caller holds mu.
func (f *File) number(key string) []byte {
	if value, ok := f.pending[key]; ok {
		return value
	}
	return f.state.stable[key]
}

// writeWithTerm writes a record together with the numbers of these keys that wait. The
// caller holds writing.
func (f *File) writeWithTerm(r record, keys ...string) error {
	stable := make(map[string][]byte)
	f.mu.RLock()
	for _, key := range keys {
		if value, ok := f.pending[key]; ok {
			stable[key] = value
		}
	}
	f.mu.RUnlock()
	maps.Copy(stable, r.Stable)
	if r.Stable = stable; len(stable) == 0 && len(r.Entries) == 0 {
		return f.journal.Broken()
	}
	if err := f.write(r); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.pending, func(key string, value []byte) bool { return bytes.Equal(f.state.stable[key], value) })
	return nil
}

// Create implements raft.SnapshotStore.
func (f *File) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("raftfile: snapshot version %d, only 1 is known", version)
	}
	return &sink{file: f, snapshot: snapshot{Meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	}}}, nil
}

// List implements raft.SnapshotStore: there is one snapshot, or none.
func (f *File) List() ([]*raft.SnapshotMeta, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.state.snap == nil {
		return nil, nil
	}
	meta := f.state.snap.Meta
	return []*raft.SnapshotMeta{&meta}, nil
}

// Open implements raft.SnapshotStore.
func (f *File) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if s := f.state.snap; s != nil && s.Meta.ID == id {
		meta := s.Meta
		return &meta, io.NopCloser(bytes.NewReader(s.Data)), nil
	}
	return nil, nil, fmt.Errorf("raftfile: there is no snapshot %q", id)
}

// maxSnapshot bounds a snapshot in bytes.
const maxSnapshot = 64 << 20

// sink gathers a snapshot and writes it when it is closed.
type sink struct {
	file *File
	snapshot
	ended bool
}

// Write implements io.Writer.
func (s *sink) Write(p []byte) (int, error) {
	if len(s.Data)+len(p) > maxSnapshot {
		return 0, fmt.Errorf("raftfile: a snapshot has at most %d bytes", maxSnapshot)
	}
	s.Data = append(s.Data, p...)
	return len(p), nil
}

// Close writes the snapshot.
func (s *sink) Close() error {
	if s.ended {
		return nil
	}
	s.ended = true
	s.Meta.Size = int64(len(s.Data))
	s.file.writing.Lock()
	defer s.file.done()
	return s.file.write(record{Snapshot: &s.snapshot})
}

// ID implements raft.SnapshotSink.
func (s *sink) ID() string { return s.Meta.ID }

// Cancel implements raft.SnapshotSink.
func (s *sink) Cancel() error {
	s.ended = true
	return nil
}
