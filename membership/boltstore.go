package membership

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// boltStore keeps raft's log and its votes in one bbolt file. Every write is
// on disk when it returns.
type boltStore struct{ db *bbolt.DB }

var (
	_ raft.LogStore    = (*boltStore)(nil)
	_ raft.StableStore = (*boltStore)(nil)
)

var (
	bucketLog    = []byte("log")
	bucketStable = []byte("stable")
	bucketMeta   = []byte("meta")
)

// openBolt opens or creates the file. Another process that has it open makes
// it fail after a second.
func openBolt(path string) (*boltStore, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{bucketLog, bucketStable, bucketMeta} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &boltStore{db}, nil
}

func (s *boltStore) close() error { return s.db.Close() }

// entry is the stored form of raft.Log.
type entry struct {
	Index      uint64       `json:"i"`
	Term       uint64       `json:"t"`
	Type       raft.LogType `json:"k"`
	Data       []byte       `json:"d,omitempty"`
	Extensions []byte       `json:"x,omitempty"`
	AppendedAt time.Time    `json:"a"`
}

func logKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// FirstIndex returns the index of the oldest entry, 0 if there is none.
func (s *boltStore) FirstIndex() (uint64, error) {
	return s.edge(func(c *bbolt.Cursor) []byte { k, _ := c.First(); return k })
}

// LastIndex returns the index of the newest entry, 0 if there is none.
func (s *boltStore) LastIndex() (uint64, error) {
	return s.edge(func(c *bbolt.Cursor) []byte { k, _ := c.Last(); return k })
}

func (s *boltStore) edge(move func(*bbolt.Cursor) []byte) (index uint64, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		switch key := move(tx.Bucket(bucketLog).Cursor()); len(key) {
		case 0:
		case 8:
			index = binary.BigEndian.Uint64(key)
		default:
			return fmt.Errorf("membership: log key of %d bytes", len(key))
		}
		return nil
	})
	return index, err
}

// GetLog reads one entry, or fails with raft.ErrLogNotFound.
func (s *boltStore) GetLog(index uint64, into *raft.Log) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		data := tx.Bucket(bucketLog).Get(logKey(index))
		if data == nil {
			return raft.ErrLogNotFound
		}
		var e entry
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("membership: log entry %d: %w", index, err)
		}
		*into = raft.Log(e)
		return nil
	})
}

// StoreLog writes one entry.
func (s *boltStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs writes entries in one transaction: all or none.
func (s *boltStore) StoreLogs(logs []*raft.Log) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bucketLog)
		for _, log := range logs {
			data, err := json.Marshal(entry(*log))
			if err != nil {
				return fmt.Errorf("membership: log entry %d: %w", log.Index, err)
			}
			if err := bucket.Put(logKey(log.Index), data); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteRange removes the entries from lowest to highest, both included.
func (s *boltStore) DeleteRange(lowest, highest uint64) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(bucketLog).Cursor()
		for key, _ := cursor.Seek(logKey(lowest)); key != nil; key, _ = cursor.Seek(logKey(lowest)) {
			if binary.BigEndian.Uint64(key) > highest {
				return nil
			}
			if err := cursor.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Set writes a value of raft's.
func (s *boltStore) Set(key, value []byte) error { return s.put(bucketStable, key, value) }

// Get reads a value of raft's; nil if there is none.
func (s *boltStore) Get(key []byte) ([]byte, error) { return s.get(bucketStable, key) }

// SetUint64 writes a number of raft's.
func (s *boltStore) SetUint64(key []byte, value uint64) error {
	return s.put(bucketStable, key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 reads a number of raft's; 0 if there is none.
func (s *boltStore) GetUint64(key []byte) (uint64, error) {
	value, err := s.get(bucketStable, key)
	if err != nil || len(value) == 0 {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("membership: %q holds %d bytes, not a number", key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

func (s *boltStore) put(bucket, key, value []byte) error {
	return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(key, value) })
}

// get copies: bbolt's memory is gone when the transaction ends.
func (s *boltStore) get(bucket, key []byte) (value []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		value = append(value, tx.Bucket(bucket).Get(key)...)
		return nil
	})
	return value, err
}
