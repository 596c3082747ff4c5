package node

import (
	"fmt"
	"log/slog"
)

// logDisk logs when the disk of data_dir becomes nearly full.
func (r *report) logDisk(was *bool) {
	texts := r.disk()
	if now := len(texts) > 0; now != *was {
		if *was = now; now {
			r.cfg.Logger.Warn("the disk of data_dir is nearly full", slog.String("detail", texts[0]), slog.String("hint", "make room: a gateway that cannot write ends"))
		}
	}
}

// little is the free share of data_dir's disk below which the disk is nearly full, as in the alert.
const little = 0.05

// disk returns a trouble if the disk of data_dir is nearly full.
func (r *report) disk() []string {
	size, free, ok := diskSpace(r.cfg.DataDir)
	if !ok || float64(free) >= little*float64(size) {
		return nil
	}
	return []string{fmt.Sprintf("the disk of data_dir %s has %d MiB of %d MiB left", r.cfg.DataDir, free>>20, size>>20)}
}
