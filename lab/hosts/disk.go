package hosts

import (
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/lab/sim"
)

// disk is a host's disk. Records are written one after the other, some of them at once. A torn record
// counts as absent: package journal ensures that.
type disk struct {
	records [][]byte
	writing []core.Write
	syncing int // how many of writing the write that is under way has; 0: there is none
	hangs   bool
	ended   bool // the write that is under way has, and the disk hangs
	// writes is how many records there were; crashAt ends the process when so many are on disk;
	// 0: never.
	writes, crashAt int
}

// load gives a process the records on disk.
func (d *disk) load(s *core.Stored) error {
	d.writing, d.syncing, d.ended = nil, 0, false
	for _, r := range d.records {
		if err := s.Load(r); err != nil {
			return err
		}
	}
	return nil
}

// put has records written.
func (d *disk) put(h *Host, writes []core.Write) {
	d.writing = append(d.writing, writes...)
	if d.syncing > 0 || len(d.writing) == 0 {
		return
	}
	d.syncing = len(d.writing)
	h.After(h.Write/2+time.Duration(h.Rand().Int64N(int64(h.Write)+1)), sim.Timer{Kind: timerDisk})
}

// written ends the write that is under way.
func (d *disk) written(h *Host) {
	if d.hangs {
		d.ended = true
		return
	}
	done := d.writing[:d.syncing]
	d.ended, d.syncing, d.writing = false, 0, append([]core.Write(nil), d.writing[d.syncing:]...)
	for _, w := range done {
		d.records = append(d.records, w.Record)
		if d.writes++; d.writes == d.crashAt {
			d.writing = nil // of what comes after it, nothing is on disk
			h.Tracef("write %d is its last", d.writes)
			h.Kill()
			return
		}
	}
	h.Step(core.Written{Number: done[len(done)-1].Number})
	if h.Core != nil {
		d.put(h, nil)
	}
}

// crash interrupts the writes under way: any number of their records are on disk.
func (d *disk) crash(h *Host) {
	for _, w := range d.writing[:h.Rand().IntN(len(d.writing)+1)] {
		d.records = append(d.records, w.Record)
	}
	d.writing, d.syncing, d.ended = nil, 0, false
}

// Hang stops the disk: no write ends.
func (h *Host) Hang() { h.Tracef("its disk hangs"); h.disk.hangs = true }

// Hangs reports whether the disk hangs.
func (h *Host) Hangs() bool { return h.disk.hangs }

// Unhang lets the disk go on.
func (h *Host) Unhang() {
	if h.disk.hangs = false; h.disk.ended {
		h.disk.ended = false
		h.After(0, sim.Timer{Kind: timerDisk})
	}
}

// CrashAt ends the process when its host has written so many records in all, right after the
// write; 0: never.
func (h *Host) CrashAt(writes int) { h.disk.crashAt = writes }

// Writes returns how many records the host has written in all.
func (h *Host) Writes() int { return h.disk.writes }

// Records returns how many records are on disk.
func (h *Host) Records() int { return len(h.disk.records) }

// Restore puts an old copy of the disk back: its first records. No process may run.
func (h *Host) Restore(records int) error {
	if h.Core != nil || records > len(h.disk.records) {
		return fmt.Errorf("%s: there is no such copy, or a process runs", h.Name)
	}
	h.disk.records = h.disk.records[:records:records]
	return nil
}

// Rewrite puts fewer records on disk that say the same, as membership's driver does now and then. No process
// may run.
func (h *Host) Rewrite() error {
	s := core.NewStored(h.id, h.Name)
	if err := h.disk.load(s); err != nil {
		return err
	}
	whole, err := s.Whole()
	if err == nil {
		h.disk.records = whole
	}
	return err
}
