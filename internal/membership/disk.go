package membership

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/internal/oncelog"
)

// disk writes the core's records to a journal. A record of the journal holds all that were waiting,
// so that they need one sync.
type disk struct {
	config   Config
	slowFrom func() time.Duration
	once     oncelog.Limit
	journal  *journal.Journal // nil: there is no directory. It belongs to run, from then on
	mirror   *core.Stored     // what is on disk; belongs to run, too

	mu      sync.Mutex
	waiting []core.Write
	mark    string
	marked  []chan error // who waits until the mark is on disk
	broken  error
	wake    chan struct{}
}

const (
	// dataFile is the file of a data directory. Versions before format 4 kept another raft's log there.
	dataFile      = "kgate.db"
	journalMagic  = "kgate raft file\n"
	journalFormat = 4
	// recordMark is the first byte of the record that has the mark of the tickets.
	recordMark = 'm'
)

// openDisk opens the directory, and loads what it has.
func openDisk(config Config, stored *core.Stored, slowFrom func() time.Duration) (*disk, error) {
	d := &disk{config: config, slowFrom: slowFrom, mirror: core.NewStored(stored.ID(), config.Name), wake: make(chan struct{}, 1)}
	if config.DataDir == "" {
		return d, nil
	}
	err := os.MkdirAll(config.DataDir, 0o700)
	if err == nil {
		d.journal, err = journal.Open(filepath.Join(config.DataDir, dataFile), journal.Options{
			Magic: journalMagic, Format: journalFormat, FS: config.files, Wrote: d.wrote,
			Apply: func(body []byte) error {
				return split(body, func(record []byte) error {
					if mark, is := bytes.CutPrefix(record, []byte{recordMark}); is {
						d.mark = string(mark)
						return nil
					}
					return errors.Join(stored.Load(record), d.mirror.Load(record))
				})
			},
			Whole: d.whole,
		})
	}
	if err != nil {
		return nil, dirError(config.DataDir, err)
	}
	return d, nil
}

// dirError says which directory cannot be used, why, and what to do.
func dirError(dir string, err error) error {
	if dir == "" {
		return err
	}
	return fmt.Errorf("%w: %s: %w%s", errDataDir, dir, err, advice(err))
}

// advice says what to do about an error of the data directory.
func advice(err error) string {
	switch {
	case errors.Is(err, journal.ErrOlder):
		return "; stop all gateways, move the data directory of each away, and start them: k is then what their files say"
	case errors.Is(err, views.ErrNewer):
		return "; run the newer version, or move the directory away: the gateway then joins as a new one"
	case errors.Is(err, core.ErrBehind), errors.Is(err, core.ErrContradiction):
		return "; do not put old copies of a data directory back: move the directory away from each gateway that has an old one, it then joins as a new one"
	case errors.Is(err, core.ErrOtherName):
		return ": give each gateway a data directory of its own, or go back to the old name"
	default:
		return journal.Remedy(err, "the directory away: the gateway then joins as a new one")
	}
}

// whole returns all that is on disk as one record of the journal.
func (d *disk) whole() ([]byte, error) {
	records, err := d.mirror.Whole()
	if mark := d.ticketsMark(); mark != "" {
		records = append(records, append([]byte{recordMark}, mark...))
	}
	return join(records), err
}

func join(records [][]byte) []byte {
	var body []byte
	for _, r := range records {
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(r))), r...)
	}
	return body
}

// split hands each of the records on.
func split(body []byte, load func(record []byte) error) error {
	for len(body) > 0 {
		if len(body) < 4 || uint64(len(body)-4) < uint64(binary.BigEndian.Uint32(body)) {
			return fmt.Errorf("a record is cut off, %d bytes before the end", len(body))
		}
		n := 4 + int(binary.BigEndian.Uint32(body))
		if err := load(body[4:n]); err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

// write has records written, soon.
func (d *disk) write(writes []core.Write) {
	if len(writes) == 0 {
		return
	}
	d.mu.Lock()
	d.waiting = append(d.waiting, writes...)
	d.mu.Unlock()
	d.wakeUp()
}

func (d *disk) wakeUp() {
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
			d.end(errClosed)
			return
		case <-d.wake:
		}
		d.mu.Lock()
		writes, marked, mark := d.waiting, d.marked, d.mark
		d.waiting, d.marked = nil, nil
		d.mu.Unlock()
		var records [][]byte
		for _, w := range writes {
			records = append(records, w.Record)
		}
		if len(marked) > 0 {
			records = append(records, append([]byte{recordMark}, mark...))
		}
		err := d.append(records)
		for _, said := range marked {
			said <- err
		}
		if err != nil {
			d.end(err)
			fail(dirError(d.config.DataDir, err))
			return
		}
		if len(writes) > 0 {
			post(core.Written{Number: writes[len(writes)-1].Number})
		}
	}
}

// end answers those that wait, and that will.
func (d *disk) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = err
	for _, said := range d.marked {
		said <- err
	}
	d.marked = nil
}

// append writes records to the journal.
func (d *disk) append(records [][]byte) error {
	if len(records) == 0 || d.journal == nil {
		return nil
	}
	if err := d.journal.Append(join(records)); err != nil {
		return err
	}
	for _, r := range records {
		if r[0] == recordMark {
			continue
		}
		if err := d.mirror.Load(r); err != nil {
			return err
		}
	}
	return d.journal.Compact()
}

// wrote takes in how long a write took, and names a disk that is slow.
func (d *disk) wrote(took time.Duration) {
	d.config.Stored(took)
	if d.journal == nil { // it is being opened
		return
	}
	if slow := d.slowFrom(); took >= slow && d.once.First("slow") {
		d.config.Logger.Warn("the disk of data_dir is slow", slog.String("data_dir", d.config.DataDir),
			slog.Duration("write_took", took), slog.Duration("slow_from", slow),
			slog.String("hint", "elections and changes of k take several such writes; use another disk, or a longer cluster.lease"))
	}
}

func (d *disk) ticketsMark() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mark
}

// setTicketsMark returns when the mark is on disk.
func (d *disk) setTicketsMark(mark string) error {
	said := make(chan error, 1)
	d.mu.Lock()
	if d.broken != nil {
		defer d.mu.Unlock()
		return d.broken
	}
	d.mark = mark
	d.marked = append(d.marked, said)
	d.mu.Unlock()
	d.wakeUp()
	return <-said
}

func (d *disk) close() error {
	if d.journal == nil {
		return nil
	}
	if err := d.journal.Close(); err != nil {
		return fmt.Errorf("close the data directory: %w", err)
	}
	return nil
}
