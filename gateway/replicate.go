package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership"
	"github.com/kgate/kgate/replication"
)

func copiesPath(pool string) string { return "/v1/pools/" + url.PathEscape(pool) + "/copies" }

// push sends the successors what they lack, in the background. The caller holds
// the pool's lock.
func (d *desk) push() {
	if d.pool.g.ctx.Err() != nil {
		return
	}
	d.pool.g.keeper.changed()
	for _, out := range d.replicas.Next() {
		m, in := d.pool.view.Member(out.To)
		if !in {
			d.replicas.Failed(out.To, out.Push.Seq)
			continue
		}
		d.pool.g.wg.Go(func() { d.send(m, out.Push) })
	}
}

func (d *desk) send(to membership.Member, push *replication.Push) {
	const (
		patience = 2 * time.Second
		pause    = 100 * time.Millisecond
	)
	g := d.pool.g
	ctx, cancel := context.WithTimeout(g.ctx, patience)
	defer cancel()
	var ack replication.Ack
	err := g.call(ctx, to.PeerAddr, copiesPath(d.pool.name), push, &ack)
	if err != nil {
		select {
		case <-time.After(pause):
		case <-g.ctx.Done():
			return
		}
	}
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	if d.pool.desk != d {
		return
	}
	if err != nil {
		d.replicas.Failed(to.Node, push.Seq)
	} else {
		d.replicas.Acked(to.Node, ack)
	}
	d.push()
	d.moved.signal(true)
}

// serveCopy takes in what an owner of tickets sends its successor.
func (g *Gateway) serveCopy(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, replication.MaxPush))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	push, err := replication.DecodePush(data)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := g.pool(r.PathValue("pool"))
	if p == nil {
		http.Error(w, "unknown pool", http.StatusNotFound)
		return
	}
	ack, err := p.receiveCopy(push)
	if err != nil && !errors.Is(err, replication.ErrGap) {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	respond(w, ack)
}

func (p *pool) receiveCopy(push *replication.Push) (replication.Ack, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.desk == nil {
		return replication.Ack{}, fmt.Errorf("%w: no tickets are known of here yet", ErrIsolated)
	}
	// What a lost owner has sent last may come late: then its copies are
	// reported already.
	if lost := p.desk.lost(p.view); lost(push.Owner) {
		return replication.Ack{}, fmt.Errorf("%w: node %d is lost", ErrIsolated, push.Owner)
	}
	defer p.g.keeper.changed()
	return p.desk.copies.Receive(push)
}

// copiesOf returns the copies that this gateway keeps for a pool, whatever
// incarnation it is.
func (g *Gateway) copiesOf(pool string) *replication.Copies {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.copies[pool]
	if c == nil {
		c = replication.NewCopies()
		g.copies[pool] = c
	}
	return c
}

// lostOf lists the lost gateways of which there may be tickets.
func (p *pool) lostOf(view *membership.View, spec membership.Pool) []replication.Lost {
	if spec.Tickets == 0 {
		return nil
	}
	var lost []replication.Lost
	for _, l := range view.Lost {
		if l.At > spec.Tickets {
			lost = append(lost, replication.Lost{Node: l.Node, Heir: l.Heir, Over: p.g.forgiven(p.name, l.Node)})
		}
	}
	return lost
}

// missing remembers, at a pool's home, lost gateways whose tickets nobody knows,
// until the last slot that they can have given out has run out.
type missing struct {
	pool string
	node kmutex.Node
}

// forgiven reports whether the slots of a lost gateway have run out for sure.
func (g *Gateway) forgiven(pool string, n kmutex.Node) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	since, known := g.missing[missing{pool, n}]
	return known && g.now().Sub(since) >= replication.MaxTTL
}

// miss notes that nobody knows the tickets of some lost gateways, and begins a
// new epoch when their tokens can come back. The caller holds the pool's lock.
func (p *pool) miss(nodes []kmutex.Node, epoch uint64) {
	if p.missed != nil {
		p.missed.Stop() // the epoch that it was to end is over
	}
	if len(nodes) == 0 {
		return
	}
	g := p.g
	g.mu.Lock()
	for k := range g.missing {
		if _, lost := p.view.Gone(k.node); k.pool == p.name && !lost {
			delete(g.missing, k) // the view has forgotten it
		}
	}
	oldest := g.now()
	for _, n := range nodes {
		since, known := g.missing[missing{p.name, n}]
		if !known {
			since = g.now()
			g.missing[missing{p.name, n}] = since
		}
		if since.Before(oldest) {
			oldest = since
		}
	}
	g.mu.Unlock()
	p.log.Warn("what lost gateways had given out cannot be known: their tokens are withheld until it has run out",
		slog.Any("nodes", nodes), slog.Duration("longest", replication.MaxTTL))
	p.missed = time.AfterFunc(oldest.Add(replication.MaxTTL).Sub(g.now()), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if g.ctx.Err() == nil && p.machine != nil {
			p.recover(epoch)
		}
	})
}
