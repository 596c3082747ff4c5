// Package journal keeps records in one file, each on disk before it counts.
//
// # What it promises
//
//   - A record is on disk when [Journal.Append] returns.
//   - After a crash or a loss of power the file holds all acknowledged records, and
//     an interrupted write as a whole or not at all.
//   - A file that was damaged (bits flipped, parts zeroed, its end cut off) is
//     refused with [ErrDamaged]. It is never read as an older state.
//   - After a write or a sync has failed, every later write fails, until
//     [Journal.Recover] has written everything to a new file: the content of the
//     old file is unknown then.
//
// An old copy of a whole file is a valid file. Only other data can show that it is old.
//
// # Format
//
// All numbers are little-endian, all checksums CRC-32C.
//
//	0     magic (16), format (4), checksum (4)
//	512   marker
//	1024  marker
//	4096  records, one behind the other
//
// A record is its length (4), a checksum over all else (4), its number (8) and its body. Numbers start
// at 1 and have no gaps.
//
// A marker says how many records have been acknowledged. It is written after the
// sync of a record, to the older of its two places, and reaches the disk with the next
// sync at the latest. So a record that is missing or does not match its checksum is
// damaged if the marker counts it, and was never acknowledged if it does not.
//
// When the file has grown, a new file with one record replaces it by a rename.
package journal
