package fuzz

import (
	"math/rand/v2"
	"time"

	"github.com/kgate/kgate/lab/cluster"
)

// This file makes the requests, the tickets and the simple faults of a scenario.

type generator struct {
	*Scenario
	r *rand.Rand
}

func (g *generator) any() time.Duration { return time.Duration(g.r.Int64N(int64(g.End))) }

func (g *generator) add(o Op) { g.Ops = append(g.Ops, o) }

// requests come in a stream that the tokens can about serve, now and then many at
// once.
func (g *generator) requests() {
	hold := []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 600 * time.Millisecond}[g.r.IntN(3)]
	load := 0.3 + 1.5*g.r.Float64()
	n := int(load * float64(g.K) * g.End.Seconds() / hold.Seconds())
	if n > maxRequests {
		n, hold = maxRequests, hold*time.Duration(n)/maxRequests
	}
	for range n {
		o := Op{At: g.any(), Kind: OpRequest, Host: g.r.IntN(g.Hosts), Hold: time.Duration(g.r.ExpFloat64() * float64(hold))}
		switch g.r.IntN(12) {
		case 0:
			o.Patience = time.Duration(g.r.ExpFloat64() * float64(hold))
		case 1:
			o.Hold *= 10
		case 2:
			if g.r.IntN(4) == 0 { // longer than any lease
				o.Hold = time.Duration(g.r.ExpFloat64() * 2 * float64(lease))
			}
		}
		for range 1 + 6*(g.r.IntN(30)/29) {
			g.add(o)
		}
	}
}

// tickets are taken in a third of the scenarios, and where a fault wants some.
func (g *generator) tickets(r *rand.Rand) {
	if r.IntN(3) > 0 && !g.Tickets {
		return
	}
	g.Tickets = true
	for range 1 + r.IntN(24) {
		g.add(Op{
			At: time.Duration(r.Int64N(int64(g.End))), Kind: OpTicket, Host: r.IntN(g.Hosts),
			Hold:     time.Duration(r.ExpFloat64() * float64(time.Second)),
			Patience: time.Second + time.Duration(r.Int64N(int64(3*time.Second))),
		})
	}
}

// upstreams have a k of their own in some scenarios, and gateways cannot reach one now and then.
func (g *generator) upstreams(r *rand.Rand) {
	if g.Early || g.Seed%5 != 0 {
		return
	}
	g.Upstreams = 1 + r.IntN(min(3, g.K))
	for range r.IntN(8) {
		o := Op{At: time.Duration(r.Int64N(int64(g.End))), Kind: OpSick, Host: r.IntN(g.Hosts), K: r.IntN(g.Upstreams)}
		g.add(o)
		o.At, o.Kind = o.At+g.span(), OpWell
		g.add(o)
	}
	for range r.IntN(6) {
		g.add(Op{At: time.Duration(r.Int64N(int64(g.End))), Kind: OpSetK, K: 1 + r.IntN(maxK)})
	}
}

// faults of a few kinds happen, so that each kind is met with few others, too.
func (g *generator) faults() {
	kinds := []func(){
		g.restart, g.pause, g.partition, g.spike, g.changeK, g.join, g.laggard, g.leave, g.clocks, g.elect, g.suspect, g.recover, g.limit, g.headless,
		g.partialHeal, g.refuse, g.narrow, g.lose, g.oneWay, g.flap, g.promised, g.crash, g.write, g.hang, g.restore, g.snap, g.depose,
	}
	chosen := g.r.Perm(len(kinds))[:1+g.r.IntN(4)]
	for range 1 + g.r.IntN(10) {
		kinds[chosen[g.r.IntN(len(chosen))]]()
	}
}

// point adds an operation at any moment, half of the time next to a message.
func (g *generator) point(o Op) Op {
	o.At, o.Host = g.any(), g.r.IntN(g.Hosts)
	if g.r.IntN(2) == 0 {
		kinds := cluster.Kinds(g.Early)
		if g.r.IntN(2) == 0 { // the most critical kinds
			kinds = []string{"baton", "token", "grant", "report", "answer"}
		}
		o.On, o.After = kinds[g.r.IntN(len(kinds))], g.r.IntN(2) == 0
		if o.On == "token" && !g.Early {
			o.On = "tokens" // late binding's
		}
	}
	g.add(o)
	return o
}

// span is how long a fault lasts: half of the time below a lease, else above.
func (g *generator) span() time.Duration {
	if g.r.IntN(2) == 0 {
		return time.Duration(g.r.ExpFloat64() * float64(lease) / 5)
	}
	return lease + time.Duration(g.r.ExpFloat64()*float64(lease))
}

func (g *generator) restart() {
	o := g.point(Op{Kind: OpKill})
	g.add(Op{At: o.At + g.span(), Kind: OpStart, Host: o.Host})
}

func (g *generator) pause() {
	o := g.point(Op{Kind: OpPause})
	g.add(Op{At: o.At + g.span(), Kind: OpResume, Host: o.Host})
}

func (g *generator) partition() {
	all := uint(1)<<g.Hosts - 1
	side := uint(g.r.IntN(int(all) + 1))
	o := Op{At: g.any(), Kind: OpCut, From: side, To: all &^ side}
	if g.r.IntN(4) == 0 { // any shape
		o.From, o.To = uint(g.r.IntN(int(all)+1)), uint(g.r.IntN(int(all)+1))
	}
	until := o.At + g.span()
	back := o
	back.From, back.To = o.To, o.From
	oneWay := g.r.IntN(4) == 0
	for _, o := range []Op{o, back} {
		g.add(o)
		o.At, o.Kind = until, OpHeal
		g.add(o)
		if oneWay {
			return
		}
	}
}

func (g *generator) spike() {
	o := Op{At: g.any(), Kind: OpSlow, Host: g.r.IntN(g.Hosts), To: uint(g.r.IntN(g.Hosts)), Hold: g.span() / 4}
	g.add(o)
	o.At, o.Hold = o.At+g.span(), 0
	g.add(o)
}

func (g *generator) changeK() { g.add(Op{At: g.any(), Kind: OpSetK, K: 1 + g.r.IntN(maxK)}) }

func (g *generator) join() {
	g.add(Op{At: g.any(), Kind: OpStart, Host: g.r.IntN(g.Hosts)})
}

// laggard is a gateway that learns late of another gateway's return, while both want slots: others, which
// know of the return, pass its requests on.
func (g *generator) laggard() {
	at, late := g.any()/2, 1+g.r.IntN(g.Hosts-1)
	back := 1 + (late+g.r.IntN(g.Hosts-1))%(g.Hosts-1)
	g.add(Op{At: at, Kind: OpKill, Host: back})
	at += lease
	o := Op{At: at, Kind: OpSlow, To: uint(late), Hold: lease / 3}
	g.add(o) // from host 0, which leads at first
	g.add(Op{At: at + lease/30, Kind: OpStart, Host: back})
	o.At, o.Hold = at+lease, 0
	g.add(o)
	for i := range 60 {
		asked := at + time.Duration(g.r.Int64N(int64(lease/2)))
		g.add(Op{At: asked, Kind: OpRequest, Host: []int{late, back}[i%2], Hold: g.Base})
	}
}
