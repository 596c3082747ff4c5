package gateway

import (
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/replication/disk"
)

// ticketDisk writes tickets to disk, so that they outlive even the loss of all
// gateways at once. What changes while one write is under way goes with the
// next.
type ticketDisk struct {
	none   bool        // there is no data directory
	opened bool        // or is being; watch's alone
	loaded atomic.Bool // what was there has been brought in
	// store is nil while no pool has tickets, without a data directory, and if
	// that cannot be used.
	store atomic.Pointer[disk.Store]
	kick  chan struct{} // something has changed
}

// state tells what is known of the disk.
func (d *ticketDisk) state() pool.Disk {
	switch {
	case d.none:
		return pool.DiskNone
	case !d.loaded.Load():
		return pool.DiskUnread
	case d.store.Load() == nil:
		return pool.DiskNone
	default:
		return pool.DiskRead
	}
}

// changed schedules a write.
func (d *ticketDisk) changed() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// openDisk begins to keep tickets on disk when the first pool has some. It brings in
// what is there: copies that this gateway had, and its own table, before it was
// started. Then it tells the pools (poolDriver.loaded).
func (g *Gateway) openDisk(cluster string) {
	if g.disk.none || g.disk.opened {
		return
	}
	g.disk.opened = true
	g.wg.Go(func() {
		g.loadDisk(cluster)
		g.disk.loaded.Store(true)
		for _, p := range g.all() {
			p.loaded()
		}
	})
}

// loadDisk opens the disk. It can take long: neither a lock nor a lease waits for
// it.
func (g *Gateway) loadDisk(cluster string) {
	store, err := disk.Open(filepath.Join(g.cfg.DataDir, "tickets"), cluster, g.views.TicketsMark())
	if err != nil {
		g.cfg.Logger.Error("tickets are not kept on disk: they are lost if all gateways stop at once", slog.Any("error", err))
		return
	}
	if err := g.views.SetTicketsMark(store.Mark()); err != nil {
		g.cfg.Logger.Error("data_dir cannot be written", slog.Any("error", err))
	}
	switch {
	case store.Stale() && !store.Created():
		g.cfg.Logger.Error("the file of the tickets is not the one that was in data_dir last: newer tickets that only this gateway knew are lost, and their slots may be given out again",
			slog.String("data_dir", g.cfg.DataDir), slog.String("remedy", "do not put old copies of data_dir, or of files in it, back"))
	case store.Stale():
		g.cfg.Logger.Error("the file of tickets is gone from data_dir: tickets that only this gateway had are lost, and their slots may be granted again",
			slog.String("data_dir", g.cfg.DataDir), slog.String("remedy", "put nothing back; find out who removed it, or whether data_dir is the right one"))
	}
	for pool, all := range store.Load() {
		for _, d := range all {
			if err := g.memoryOf(pool).Replicas().Restore(d); err != nil {
				g.cfg.Logger.Error("tickets on disk cannot be used", slog.String("pool", pool), slog.Any("error", err))
			}
		}
	}
	g.disk.store.Store(store)
	g.wg.Go(func() { g.keep(store) })
}

// written notes that the disk has a pool's table up to a version.
type written struct {
	pool    *poolDriver
	tickets *pool.Tickets
	version uint64
}

// keep writes until Close.
func (g *Gateway) keep(store *disk.Store) {
	const pause = time.Second // after a failure
	k := &g.disk
	defer func() {
		if err := store.Close(); err != nil {
			g.cfg.Logger.Error("tickets on disk", slog.Any("error", err))
		}
	}()
	for {
		select {
		case <-k.kick:
		case <-g.ctx.Done():
			return
		}
		var changes []disk.Change
		var news []written
		for _, p := range g.all() {
			p.mu.Lock()
			if ts := p.tickets(); ts != nil {
				changes = append(changes, store.Pending(p.name, ts.Table(), ts.Replicas())...)
				news = append(news, written{p, ts, ts.Table().Version()})
			}
			p.mu.Unlock()
		}
		began := time.Now()
		err := store.Write(changes)
		g.cfg.Observer.TicketsWritten(time.Since(began))
		if err != nil && g.losses.First("disk") {
			g.cfg.Logger.Error("tickets cannot be written: they are lost if all gateways stop at once", slog.Any("error", err))
		}
		for _, w := range news {
			w.pool.mu.Lock()
			if w.pool.tickets() == w.tickets {
				// With a disk that is full, the successors have to do.
				w.pool.core.Written(w.version)
				w.pool.moved.signal(true)
			}
			w.pool.mu.Unlock()
		}
		if err != nil {
			select {
			case <-time.After(pause):
				k.changed()
			case <-g.ctx.Done():
				return
			}
		}
	}
}
