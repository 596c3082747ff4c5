package fairk

import (
	"errors"
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
)

// letter is a letter of one pool on its way.
type letter struct {
	from   kmutex.Node
	letter pool.Letter
}

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

// Letter returns to whom a letter goes; false: m is none. It may get lost; the gateway is told then.
func Letter(m any) (to kmutex.Node, ok bool) {
	l, ok := m.(*letter)
	if !ok {
		return 0, false
	}
	return l.letter.To, true
}

func (g *Gateway) post(l pool.Letter) {
	out := &letter{from: g.self, letter: l}
	if m, known := g.view.member(l.To); known {
		g.cfg.Host.Send(g.cfg.Index, m.Host, out.Kind(), out)
	}
}

// TakeLetter takes in a letter, and reports whether it has. It drops letters to another incarnation and
// letters from an incarnation that this gateway does not know.
func (g *Gateway) TakeLetter(m any) bool {
	l := m.(*letter)
	_, known := g.view.member(l.from)
	if l.letter.To != g.self || !known || g.pool == nil {
		return false
	}
	fx, err := g.pool.Take(g.now(), l.from, &l.letter)
	if errors.Is(err, pool.ErrNotYet) {
		return false
	} else if err != nil {
		g.fail(fmt.Errorf("node %d: %v: %w", g.self, l, err))
	}
	g.carry(fx)
	return true
}

// LoseLetter takes in that a letter has not arrived, may not have arrived, or was not taken in.
func (g *Gateway) LoseLetter(m any) {
	if l := m.(*letter); l.from == g.self {
		g.carry(g.pool.Undelivered(g.now(), l.letter))
	}
}

// Follow takes over a newer view. It reports whether this incarnation is in it.
func (g *Gateway) Follow(v *View) bool {
	if v.Index <= g.view.Index {
		_, in := g.view.member(g.self)
		return in
	}
	g.view = v
	me, in := v.named(g.cfg.Index)
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
	g.carry(g.pool.Follow(g.now(), v.Pool(g.self), pool.DiskNone))
	return true
}
