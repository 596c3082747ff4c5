package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

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
