package fairk

import (
	"errors"
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
)

// letter is a letter of one pool on its way. It goes over a link like messages,
// but nothing keeps it in order with them.
type letter struct {
	from   kmutex.Node
	letter pool.Letter
}

// returned tells the sender that a letter was not taken.
type returned struct{ letter *letter }

// Kind names the message.
func (l *letter) Kind() string {
	switch {
	case l.letter.Report != nil:
		return "report"
	case l.letter.Answer != nil:
		return "answer"
	case l.letter.Count != nil:
		return "count"
	case l.letter.Push != nil:
		return "push"
	case l.letter.Ack != nil:
		return "ack"
	default:
		return "holdings"
	}
}

// String formats the message for traces.
func (l *letter) String() string {
	to := l.letter.To
	switch {
	case l.letter.Report != nil:
		r := l.letter.Report
		return fmt.Sprintf("report to n%d: epoch %d, %d running, %d waiting turns", to, r.Epoch, len(r.Running), len(r.Waiting))
	case l.letter.Answer != nil:
		return fmt.Sprintf("answer to n%d: epoch %d", to, l.letter.Answer.Install.Epoch)
	default:
		return fmt.Sprintf("%s to n%d", l.Kind(), to)
	}
}

// Kind names the message.
func (*returned) Kind() string { return "returned" }

// Undelivered returns what the sender of a letter is told when its connection breaks;
// false: m is none.
func Undelivered(m any) (told any, ok bool) {
	l, ok := m.(*letter)
	return &returned{letter: l}, ok
}

// String formats the message for traces.
func (r *returned) String() string { return "returned: " + r.letter.String() }

func (g *Gateway) post(l pool.Letter) {
	out := &letter{from: g.self, letter: l}
	if m, known := g.view.Member(l.To); known {
		g.cfg.Host.Send(g.cfg.Index, m.Host, out.Kind(), out)
	}
}

// take takes in a letter, or sends it back: it is for another incarnation, or this
// one does not know its sender yet.
func (g *Gateway) take(host int, l *letter) {
	_, known := g.view.Member(l.from)
	if l.letter.To != g.self || !known {
		g.cfg.Host.Send(g.cfg.Index, host, "returned", &returned{letter: l})
		return
	}
	fx, err := g.pool.Take(g.now(), l.from, &l.letter)
	if errors.Is(err, pool.ErrNoTickets) {
		g.cfg.Host.Send(g.cfg.Index, host, "returned", &returned{letter: l})
	} else if err != nil {
		g.fail(fmt.Errorf("node %d: %v: %w", g.self, l, err))
	}
	g.carry(fx)
}

// Follow takes over a newer view. It reports whether this incarnation is in it.
func (g *Gateway) Follow(v *View) bool {
	if v.Index <= g.view.Index {
		_, in := g.view.Member(g.self)
		return in
	}
	g.view = v
	me, in := v.Named(g.cfg.Index)
	if in = in && me.Boot == g.cfg.Boot; !in {
		return false
	}
	if g.self == 0 {
		g.self = me.Node
		g.pool = pool.New(pool.Config{
			Self: g.self, Binding: g.binding(), Memory: g.cfg.Memory, Audit: g.cfg.Recover != nil,
			Interval: func() time.Duration { return g.cfg.Ask },
			Placed: func(t kmutex.Request) (int64, bool) {
				if held := g.held[t]; held != nil {
					return held.Stamp, true
				} else if t >= kmutex.FirstAdopted {
					return 0, false
				}
				return g.cfg.Since(protocol.Request(t))
			},
			Wall: g.cfg.Wall,
		})
	}
	g.carry(g.pool.Follow(g.now(), v.pool(g.self, g.cfg.Wait), pool.DiskNone))
	stash := g.stash
	g.stash = nil
	for _, p := range stash {
		g.receive(p)
	}
	return true
}
