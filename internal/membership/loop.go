package membership

import (
	"log/slog"
	"sync"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// now is the core's clock. It goes on while the machine sleeps, where there is such a clock: the next
// look at a lease then finds it over.
func (c *Cluster) now() time.Duration { return bootNow().Sub(c.began) }

// queue holds what the loop has not taken in. It has no bound of its own: who tells of an event must
// never wait for the loop, which may wait for it. What others send is bounded by their connections,
// and the loop is quicker than these.
type queue struct {
	mu     sync.Mutex
	events []any // of core.Event, or greet
	wake   chan struct{}
}

func (q *queue) put(e any) {
	q.mu.Lock()
	q.events = append(q.events, e)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns what has happened meanwhile.
func (q *queue) take() []any {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}

// post has the loop take in an event.
func (c *Cluster) post(e core.Event) { c.events.put(e) }

// loop takes in events, one after the other, and carries out their effects.
func (c *Cluster) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var events []any
		select {
		case <-c.closing.Done():
			return
		case <-c.events.wake:
			events = c.events.take()
		case <-timer.C:
			c.tellMissing()
			events = []any{core.Woken{}}
		}
		for _, e := range events {
			switch e := e.(type) {
			case greet:
				c.carrier.greet(e.name)
			case core.Event:
				timer.Reset(c.step(e) - c.now())
			}
		}
	}
}

// step has the core take in an event, and returns when it wants to be woken.
func (c *Cluster) step(e core.Event) (wake time.Duration) {
	c.mu.Lock()
	leads := c.core.Leader()
	out := c.core.Step(c.now(), e)
	out.Voters = out.Voters || c.core.Leader() != leads
	c.differs.Store(c.core.Diverged())
	c.mu.Unlock()
	c.carryOut(out)
	switch e := e.(type) {
	case core.Connected:
		c.kept[e.To] = connection{name: e.Name}
		c.keep()
	case core.Disconnected:
		if release := c.kept[e.From].release; release != nil {
			release()
		}
		delete(c.kept, e.From)
	case core.Gossip:
		c.keep()
	default:
		if out.View != nil {
			c.keep()
		}
	}
	return out.Wake
}

// connection is one to a gateway.
type connection struct {
	name    string
	release func() // nil: it is not kept
}

// keep keeps the connections to gateways that this one has to do with: strangers may send little, and
// who leaves the view has more to hear.
func (c *Cluster) keep() {
	for id, k := range c.kept {
		if k.release != nil {
			continue
		}
		_, in := c.View().Named(k.name)
		for _, m := range c.config.Discovery.Members() {
			in = in || m.Name == k.name
		}
		if addr, ok := c.config.Links.Proved(k.name); ok && in {
			k.release = c.config.Links.Keep(transport.To{Name: k.name, Addr: addr})
			c.kept[id] = k
		}
	}
}

// tellMissing tells the core whom this gateway has missed for long, as often as leases are renewed. Who is missed
// for a moment may have reported before the core complains of it.
func (c *Cluster) tellMissing() {
	now, terms := c.now(), c.View().Terms()
	if !c.Standing().Valid(time.Now()) || now-c.missed < terms.Interval() {
		return
	}
	c.missed = now
	since := make(map[kmutex.Node]time.Duration)
	for node, at := range c.config.Missing() {
		if d := time.Since(at); d >= leader.MissingAfter(terms) {
			since[node] = now - d
		}
	}
	c.step(core.Missing{Since: since})
}

// carryOut does what an event has led to.
func (c *Cluster) carryOut(out core.Effects) {
	for _, l := range out.Log {
		//lint:ignore sloglint the core's texts are constant
		c.config.Logger.LogAttrs(c.closing, l.Level, l.Text, l.Attrs...)
	}
	c.disk.write(out.Write)
	for _, s := range out.Send {
		c.carrier.send(s)
	}
	for _, d := range out.Dial {
		c.wg.Go(func() { c.post(core.Dialed{Name: d.Name, Err: c.carrier.dial(c.closing, d)}) })
	}
	touched := out.View != nil || out.Voters || out.Boot != ""
	if out.Boot != "" {
		c.boot.Store(&out.Boot)
	}
	if out.View != nil {
		c.view.Store(out.View)
	}
	if out.Standing != nil {
		touched = c.stand(*out.Standing) || touched
	}
	for _, took := range out.Committed {
		c.config.Committed(took)
	}
	for _, r := range out.Results {
		c.answer(r)
	}
	if out.Failed != nil {
		c.fail(dirError(c.config.DataDir, out.Failed))
	}
	if out.Left {
		close(c.left)
	}
	if touched {
		c.touch()
	}
}

// stand takes in a standing, and reports whether one begins or ends.
func (c *Cluster) stand(s core.Standing) bool {
	before, void := c.standing.Load(), c.void.Swap(s.Void)
	now := &Standing{}
	if s.Until > 0 {
		at := time.Now() // before the core's clock: a pause in between only shortens
		*now = Standing{Node: s.Node, Until: at.Add(s.Until - c.now())}
	}
	c.standing.Store(now)
	return before.Node != now.Node || void != s.Void
}

// listen passes on what discovery knows, and tells it who this gateway is now.
func (c *Cluster) listen() {
	told := c.config.Boot
	for {
		changed := c.Changed()
		if boot := *c.boot.Load(); boot != told {
			told = boot
			if err := c.config.Discovery.SetBoot(boot); err != nil {
				c.config.Logger.Warn("gossip does not carry the new incarnation yet", slog.Any("error", err))
				told = ""
			}
		}
		var known []core.Gateway
		for _, m := range c.config.Discovery.Members() {
			known = append(known, core.Gateway{
				Name: m.Name, Boot: m.Boot, Addr: m.PeerAddr, Expect: m.Expect,
				Alive: m.Status == serfring.StatusAlive, Left: m.Status == serfring.StatusLeft,
			})
		}
		c.post(core.Gossip{Gateways: known})
		for *c.boot.Load() == told {
			select {
			case <-c.closing.Done():
				return
			case <-changed:
				changed = c.Changed()
				continue
			case <-c.config.Discovery.Changed():
			}
			break
		}
	}
}
