package driver

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/internal/membership/core"
)

// disk writes records to a journal. A record of the journal holds all that were waiting, so
// that they need one sync.
type disk struct {
	journal *journal.Journal
	mirror  *core.Stored // what is on disk; belongs to run

	mu      sync.Mutex
	waiting []core.Write
	wake    chan struct{}
}

// journalMagic and journalFormat are those of the file.
const (
	journalMagic  = "kgate core file\n"
	journalFormat = 1
)

// openDisk opens the file of a directory, and loads it.
func openDisk(config Config, stored *core.Stored) (*disk, error) {
	if err := os.MkdirAll(config.DataDir, 0o700); err != nil {
		return nil, err
	}
	d := &disk{mirror: core.NewStored(stored.ID(), config.Name), wake: make(chan struct{}, 1)}
	var err error
	d.journal, err = journal.Open(filepath.Join(config.DataDir, "core.db"), journal.Options{
		Magic: journalMagic, Format: journalFormat, FS: config.files, Wrote: config.Stored,
		Apply: func(body []byte) error { return split(body, stored.Load, d.mirror.Load) },
		Whole: func() ([]byte, error) {
			records, err := d.mirror.Whole()
			return join(records), err
		},
	})
	return d, err
}

func join(records [][]byte) []byte {
	var body []byte
	for _, r := range records {
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(r))), r...)
	}
	return body
}

func split(body []byte, load ...func([]byte) error) error {
	for len(body) > 0 {
		if len(body) < 4 || uint64(len(body)-4) < uint64(binary.BigEndian.Uint32(body)) {
			return fmt.Errorf("a record is cut off, %d bytes before the end", len(body))
		}
		n := 4 + int(binary.BigEndian.Uint32(body))
		for _, l := range load {
			if err := l(body[4:n]); err != nil {
				return err
			}
		}
		body = body[n:]
	}
	return nil
}

// write has records written, soon.
func (d *disk) write(writes []core.Write) {
	d.mu.Lock()
	d.waiting = append(d.waiting, writes...)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends.
func (d *disk) run(ctx context.Context, post func(core.Event), fail func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		d.mu.Lock()
		writes := d.waiting
		d.waiting = nil
		d.mu.Unlock()
		if len(writes) == 0 {
			continue
		}
		records := make([][]byte, len(writes))
		for i, w := range writes {
			records[i] = w.Record
		}
		body := join(records)
		err := d.journal.Append(body, journal.Tag{})
		if err == nil {
			err = split(body, d.mirror.Load)
		}
		if err == nil {
			err = d.journal.Compact()
		}
		if err != nil {
			fail(fmt.Errorf("membership: data_dir cannot be used: %w", err))
			return
		}
		post(core.Written{Number: writes[len(writes)-1].Number})
	}
}

func (d *disk) close() error {
	if d == nil || d.journal == nil {
		return nil
	}
	return d.journal.Close()
}
