package gateway

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/kgate/kgate/replication/disk"
)

// diskWriter keeps the pools' tickets on disk.
type diskWriter struct {
	*pools
	opened bool // or is being
}

// open begins to keep tickets on disk when the first pool has some. It first reads
// what is there, the replicas and the table that this gateway had before it was
// started. Then the pools go on (poolDriver.loaded).
func (w *diskWriter) open(cluster string) {
	if w.disk.none || w.opened {
		return
	}
	w.opened = true
	w.wg.Go(func() {
		w.load(cluster)
		w.disk.loaded.Store(true)
		for _, p := range w.all() {
			p.loaded()
		}
	})
}

// load opens the disk. It can take long: neither a lock nor a lease waits for
// it.
func (w *diskWriter) load(cluster string) {
	store, err := disk.Open(filepath.Join(w.cfg.DataDir, "tickets"), cluster, w.views.TicketsMark())
	if err != nil {
		w.cfg.Logger.Error("tickets are not kept on disk: they are lost if all gateways stop at once", slog.Any("error", err))
		return
	}
	if err := w.views.SetTicketsMark(store.Mark()); err != nil {
		w.cfg.Logger.Error("data_dir cannot be written", slog.Any("error", err))
	}
	switch {
	case store.Stale() && !store.Created():
		w.cfg.Logger.Error("the file of the tickets is not the one that was in data_dir last: newer tickets that only this gateway knew are lost, and their slots may be given out again",
			slog.String("data_dir", w.cfg.DataDir), slog.String("remedy", "do not put old copies of data_dir, or of files in it, back"))
	case store.Stale():
		w.cfg.Logger.Error("the file of tickets is gone from data_dir: tickets that only this gateway had are lost, and their slots may be granted again",
			slog.String("data_dir", w.cfg.DataDir), slog.String("remedy", "put nothing back; find out who removed it, or whether data_dir is the right one"))
	}
	for pool, all := range store.Load() {
		for _, d := range all {
			if err := w.memoryOf(pool).Replicas().Restore(d); err != nil {
				w.cfg.Logger.Error("tickets on disk cannot be used", slog.String("pool", pool), slog.Any("error", err))
			}
		}
	}
	w.disk.store.Store(store)
	w.wg.Go(func() { w.keep(store) })
}

// keep writes until Close.
func (w *diskWriter) keep(store *disk.Store) {
	const pause = time.Second // after a failure
	defer func() {
		if err := store.Close(); err != nil {
			w.cfg.Logger.Error("tickets on disk", slog.Any("error", err))
		}
	}()
	for {
		select {
		case <-w.disk.kick:
		case <-w.ctx.Done():
			return
		}
		var changes []disk.Change
		var written []func() // to be called when they are
		for _, p := range w.all() {
			p.mu.Lock()
			if ts := p.tickets(); ts != nil {
				changes = append(changes, store.Pending(p.name, ts.Table(), ts.Replicas())...)
				version, received := ts.Table().Version(), ts.Received()
				written = append(written, func() {
					p.event(func() {
						if p.tickets() == ts { // if the disk is full, the replicas at the successors must do
							p.apply(p.core.Written(p.clock(), version, received))
							p.moved.signal(true)
						}
					})
				})
			}
			p.mu.Unlock()
		}
		began := time.Now()
		err := store.Write(changes)
		w.cfg.Observer.TicketsWritten(time.Since(began))
		if err != nil && w.losses.First("disk") {
			w.cfg.Logger.Error("tickets cannot be written: they are lost if all gateways stop at once", slog.Any("error", err))
		}
		for _, note := range written {
			note()
		}
		if err != nil {
			select {
			case <-time.After(pause):
				w.disk.changed()
			case <-w.ctx.Done():
				return
			}
		}
	}
}
