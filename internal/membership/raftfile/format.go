package raftfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Format is the version of the file that this package writes and reads.
const Format = 3

const (
	magic        = "kgate raft file\n"
	headerSize   = len(magic) + 8
	markerSize   = 5*8 + 4
	firstRecord  = 4096
	recordHeader = 16
	// maxFile bounds what is read into memory. A file holds a few hundred entries
	// and two snapshots at most.
	maxFile = 1 << 30
)

// boltMagic stands at byte 16 of the files of formats 1 and 2.
const boltMagic = 0xED0CDAED

// Errors of [Open].
var (
	// ErrDamaged means that the file is not as it was written.
	ErrDamaged = errors.New("damaged")
	// ErrForeign means that the file is not one of kgate's.
	ErrForeign = errors.New("not a file of kgate's")
	// ErrNewer means that a newer version of kgate wrote the file.
	ErrNewer = errors.New("written by a newer version of kgate")
	// ErrOlder means that an older version of kgate wrote the file, in a format that
	// this one does not read.
	ErrOlder = errors.New("written by an older version of kgate")
	// ErrInUse means that another process has the file open.
	ErrInUse = errors.New("in use by another process")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

func encodeHeader() []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), Format)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// checkHeader tells a damaged file from one of another format or another program.
func checkHeader(data []byte) error {
	if len(data) >= 20 && binary.LittleEndian.Uint32(data[16:]) == boltMagic {
		return fmt.Errorf("%w: format 2, this one reads %d", ErrOlder, Format)
	}
	if len(data) < firstRecord {
		return damaged("it has %d bytes, the shortest one has %d", len(data), firstRecord)
	}
	if !bytes.HasPrefix(data, []byte(magic)) {
		return ErrForeign
	}
	body := data[:headerSize-4]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(data[len(body):]) {
		return damaged("the header does not match its checksum")
	}
	switch format := binary.LittleEndian.Uint32(data[len(magic):]); {
	case format > Format:
		return fmt.Errorf("%w: format %d, this one reads %d", ErrNewer, format, Format)
	case format < Format:
		return fmt.Errorf("%w: format %d, this one reads %d", ErrOlder, format, Format)
	}
	return nil
}

// Position is a place in the log.
type Position struct{ Index, Term uint64 }

// Before reports whether a log that ends at p lacks something of one that ends at q:
// raft's own order of logs.
func (p Position) Before(q Position) bool {
	return p.Term < q.Term || p.Term == q.Term && p.Index < q.Index
}

// marker says what has been acknowledged.
type marker struct {
	count     uint64 // of markers written to this file
	records   uint64
	end       uint64 // where the next record goes
	committed Position
}

// place returns where a marker goes.
func (m marker) place() int64 { return 512 * int64(1+m.count%2) }

func (m marker) encode() []byte {
	var b []byte
	for _, n := range []uint64{m.count, m.records, m.end, m.committed.Index, m.committed.Term} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeMarker returns the newer of the two markers. A loss of power can spoil the
// one that was being written, and never both.
func decodeMarker(data []byte) (newest marker, err error) {
	found := false
	for i := range uint64(2) {
		b := data[marker{count: i}.place():][:markerSize]
		if crc32.Checksum(b[:markerSize-4], castagnoli) != binary.LittleEndian.Uint32(b[markerSize-4:]) {
			continue
		}
		var n [5]uint64
		for i := range n {
			n[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		m := marker{count: n[0], records: n[1], end: n[2], committed: Position{n[3], n[4]}}
		if m.count%2 == i && (!found || m.count > newest.count) {
			newest, found = m, true
		}
	}
	if !found {
		return marker{}, damaged("neither marker matches its checksum")
	}
	return newest, nil
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

func (r record) encode(number uint64) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	b := make([]byte, recordHeader, recordHeader+len(body))
	binary.LittleEndian.PutUint32(b, uint32(len(body)))
	binary.LittleEndian.PutUint64(b[8:], number)
	b = append(b, body...)
	binary.LittleEndian.PutUint32(b[4:], checksum(b))
	return b, nil
}

// checksum of an encoded record: all but the checksum's own place.
func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, b[8:])
}

// decodeRecord returns the record at the start of data and its size; no size if there is
// no whole record of that number.
func decodeRecord(data []byte, number uint64) (r record, size int, err error) {
	if len(data) < recordHeader {
		return r, 0, nil
	}
	size = recordHeader + int(binary.LittleEndian.Uint32(data))
	if size > len(data) || checksum(data[:size]) != binary.LittleEndian.Uint32(data[4:]) ||
		binary.LittleEndian.Uint64(data[8:]) != number {
		return r, 0, nil
	}
	d := json.NewDecoder(bytes.NewReader(data[recordHeader:size]))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, 0, damaged("record %d: %v", number, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, 0, damaged("record %d: data behind its value", number)
	}
	return r, size, nil
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
