package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"syscall"
)

const (
	// magicSize is the length of a magic.
	magicSize    = 16
	headerSize   = magicSize + 8
	markerSize   = 5*8 + 4
	firstRecord  = 4096
	recordHeader = 16
	// maxFile bounds the size of a file that is read into memory.
	maxFile = 4 << 30
)

// boltMagic stands at byte 16 of the bbolt files of earlier versions.
const boltMagic = 0xED0CDAED

// Errors of [Open].
var (
	// ErrDamaged means that the file is not as it was written.
	ErrDamaged = errors.New("damaged")
	// ErrForeign means that the file is not one of kgate's.
	ErrForeign = errors.New("not a file of kgate's")
	// ErrNewer means that a newer version of kgate wrote the file.
	ErrNewer = errors.New("written by a newer version of kgate")
	// ErrOlder means that an older version of kgate wrote the file, in a format that this
	// version does not read.
	ErrOlder = errors.New("written by an older version of kgate")
	// ErrInUse means that another process has the file open.
	ErrInUse = errors.New("in use by another process")
)

// Remedy returns advice about an error of a file, as the end of a message; empty if there is none.
// lose names the file to move away and the loss that this means.
func Remedy(err error, lose string) string {
	switch {
	case errors.Is(err, ErrNewer):
		return "; run the newer version, or move " + lose
	case errors.Is(err, ErrOlder):
		return "; move " + lose
	case errors.Is(err, ErrInUse):
		return "; another kgate has it open: give each gateway a data directory of its own"
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrForeign):
		return "; the file is damaged or not kgate's: move " + lose
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return "; the user that runs kgate must be able to write there"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist), errors.Is(err, syscall.EISDIR):
		return "; it must be a directory that is empty or was written by kgate"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "; the disk is full: free some of it"
	case errors.Is(err, syscall.EIO):
		return "; the disk is failing: replace it, and start with an empty directory"
	default:
		return ""
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

func encodeHeader(magic string, format uint32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), format)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// checkHeader distinguishes a damaged file from a file of another format or another program.
func checkHeader(data []byte, magic string, format uint32) error {
	if len(data) >= 20 && binary.LittleEndian.Uint32(data[16:]) == boltMagic {
		return fmt.Errorf("%w: format %d, this one reads %d", ErrOlder, format-1, format)
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
	switch have := binary.LittleEndian.Uint32(data[magicSize:]); {
	case have > format:
		return fmt.Errorf("%w: format %d, this one reads %d", ErrNewer, have, format)
	case have < format:
		return fmt.Errorf("%w: format %d, this one reads %d", ErrOlder, have, format)
	}
	return nil
}

// marker tells how many records have been acknowledged.
type marker struct {
	count   uint64 // of markers written to this file
	records uint64
	end     uint64 // where the next record goes
}

// place returns where a marker goes.
func (m marker) place() int64 { return 512 * int64(1+m.count%2) }

func (m marker) encode() []byte {
	var b []byte
	for _, n := range []uint64{m.count, m.records, m.end, 0, 0} { // two are for later
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeMarker returns the newer of the two markers. A loss of power can spoil the marker that was
// being written, and never both.
func decodeMarker(data []byte) (newest marker, err error) {
	found := false
	for i := range uint64(2) {
		b := data[marker{count: i}.place():][:markerSize]
		if crc32.Checksum(b[:markerSize-4], castagnoli) != binary.LittleEndian.Uint32(b[markerSize-4:]) {
			continue
		}
		number := binary.LittleEndian.Uint64
		m := marker{count: number(b), records: number(b[8:]), end: number(b[16:])}
		if m.count%2 == i && (!found || m.count > newest.count) {
			newest, found = m, true
		}
	}
	if !found {
		return marker{}, damaged("neither marker matches its checksum")
	}
	return newest, nil
}

func encodeRecord(body []byte, number uint64) []byte {
	b := make([]byte, recordHeader, recordHeader+len(body))
	binary.LittleEndian.PutUint32(b, uint32(len(body)))
	binary.LittleEndian.PutUint64(b[8:], number)
	b = append(b, body...)
	binary.LittleEndian.PutUint32(b[4:], checksum(b))
	return b
}

// checksum returns the checksum of an encoded record, without the checksum's own place.
func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, b[8:])
}

// decodeRecord returns the body of the record at the start of data, and the record's size; size 0 if
// there is no whole record of that number.
func decodeRecord(data []byte, number uint64) (body []byte, size int) {
	if len(data) < recordHeader {
		return nil, 0
	}
	size = recordHeader + int(binary.LittleEndian.Uint32(data))
	if size > len(data) || checksum(data[:size]) != binary.LittleEndian.Uint32(data[4:]) ||
		binary.LittleEndian.Uint64(data[8:]) != number {
		return nil, 0
	}
	return data[recordHeader:size], size
}
