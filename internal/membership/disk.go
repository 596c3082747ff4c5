package membership

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/membership/raftfile"
	"github.com/kgate/kgate/internal/oncelog"
)

// diskWatch tells how long a write to the disk takes.
type diskWatch struct {
	config Config
	lease  func() time.Duration
	file   *raftfile.File // nil in memory
	once   oncelog.Limit

	mu     sync.Mutex
	recent [8]time.Duration
	count  int
}

// wrote notes a write, and names a disk that is slow.
func (d *diskWatch) wrote(took time.Duration) {
	d.mu.Lock()
	d.recent[d.count%len(d.recent)] = took
	d.count++
	d.mu.Unlock()
	d.config.Stored(took)
	if took > d.slowFrom() && d.once.First("slow") {
		d.config.Logger.Warn("the disk of data_dir is slow", slog.String("data_dir", d.config.DataDir),
			slog.Duration("write_took", took), slog.Duration("typical", d.typical()), slog.Duration("slow_from", d.slowFrom()),
			slog.String("hint", "elections and changes of k take several such writes; use another disk, or a longer cluster.lease"))
	}
}

// typical returns the median of the last writes, 0 if there were none. One slow write
// among them changes nothing.
func (d *diskWatch) typical() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	some := slices.Clone(d.recent[:min(d.count, len(d.recent))])
	if len(some) == 0 {
		return 0
	}
	slices.Sort(some)
	return some[len(some)/2]
}

// slowFrom is how long a write may take before the disk is called slow: six of them
// take as long as votes may.
func (d *diskWatch) slowFrom() time.Duration { return votesTime(d.lease()) / 6 }

// hangs reports that a write has been under way for so long that another gateway
// should lead: raft commits nothing meanwhile, and does not give the lead up by itself.
func (d *diskWatch) hangs() bool {
	if d.file == nil {
		return false
	}
	lease := d.lease()
	return d.file.Writing() > max(lease/2, min(writesInTimeout*d.typical(), lease))
}

// complaint says that this gateway's disk is slow, for the end of a message; empty if it
// is not.
func (d *diskWatch) complaint() string {
	typical := d.typical()
	if typical <= d.slowFrom() {
		return ""
	}
	return fmt.Sprintf("; the disk of this gateway's data_dir is slow: a write takes %v, and more than %v delays elections",
		typical.Round(time.Millisecond), d.slowFrom())
}
