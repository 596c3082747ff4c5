package membership

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// writeTimes tells how long a write to the disk takes. The zero value knows of none.
type writeTimes struct {
	mu     sync.Mutex
	recent [8]time.Duration
	count  int
}

func (w *writeTimes) note(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recent[w.count%len(w.recent)] = d
	w.count++
}

// typical returns the median of the last writes, 0 if there were none. One slow write
// among them changes nothing.
func (w *writeTimes) typical() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	some := slices.Clone(w.recent[:min(w.count, len(w.recent))])
	if len(some) == 0 {
		return 0
	}
	slices.Sort(some)
	return some[len(some)/2]
}

// slowWrite is how long a write may take before the disk is called slow: six of them
// take as long as votes may.
func (n *raftNode) slowWrite() time.Duration { return votesTime(n.lease()) / 6 }

// wrote notes a write to the disk, and names a disk that is slow.
func (n *raftNode) wrote(took time.Duration) {
	n.disk.note(took)
	n.config.Stored(took)
	if took > n.slowWrite() && n.once.First("slow disk") {
		n.config.Logger.Warn("the disk of data_dir is slow", slog.String("data_dir", n.config.DataDir),
			slog.Duration("write_took", took), slog.Duration("typical", n.disk.typical()), slog.Duration("slow_from", n.slowWrite()),
			slog.String("hint", "elections and changes of k take several such writes; use another disk, or a longer cluster.lease"))
	}
}

// diskHangs reports that a write has been under way for so long that another gateway
// should lead: raft commits nothing meanwhile, and does not give the lead up by itself.
func (n *raftNode) diskHangs() bool {
	if n.storage.file == nil {
		return false
	}
	lease := n.lease()
	return n.storage.file.Writing() > max(lease/2, min(writesInTimeout*n.disk.typical(), lease))
}

// slowDisk says that this gateway's disk is slow, for the end of a message; empty if it
// is not.
func (n *raftNode) slowDisk() string {
	typical := n.disk.typical()
	if typical <= n.slowWrite() {
		return ""
	}
	return fmt.Sprintf("; the disk of this gateway's data_dir is slow: a write takes %v, and more than %v delays elections",
		typical.Round(time.Millisecond), n.slowWrite())
}
