package fuzz

import (
	"math/rand/v2"
	"time"
)

// This file has the aimed faults: several that coincide, or that last.

// limit is a gateway that is busy and gets lost, with everything against its lease:
// its clock is slow, the others' are fast, and its last answers came late.
func (g *generator) limit() {
	at, host := g.any(), g.r.IntN(g.Hosts)
	for other := range g.Hosts {
		rate := 1.09
		if other == host {
			rate = 0.92
		} else {
			g.add(Op{At: at, Kind: OpSlow, Host: other, To: uint(host), Hold: lease * 3 / 20})
		}
		g.add(Op{At: at, Kind: OpRate, Host: other, Rate: rate})
	}
	gone := at + lease/3 + time.Duration(g.r.Int64N(int64(lease/3)))
	g.busy(gone-lease/10, host)
	o := Op{At: gone, Kind: OpPause, Host: host, On: "grant", After: true, Here: true}
	if g.r.IntN(2) == 0 {
		g.add(o)
		g.add(Op{At: gone + lease + lease/2, Kind: OpResume, Host: host})
		return
	}
	o.Kind = OpCut
	g.apart(o, 1<<host, gone+2*lease)
}

// busy is a gateway with requests that take longer than its lease, and others
// behind them.
func (g *generator) busy(at time.Duration, host int) {
	for i := range 3 * g.K {
		hold := []time.Duration{2 * lease, lease + lease/5, lease / 30}[i/g.K]
		g.add(Op{At: at, Kind: OpRequest, Host: host, Hold: hold})
	}
}

// apart cuts a side off from all the others, as o says when, until an instant.
func (g *generator) apart(o Op, side uint, until time.Duration) {
	others := (uint(1)<<g.Hosts - 1) &^ side
	for range 2 {
		o.From, o.To = side, others
		g.add(o)
		g.add(Op{At: until, Kind: OpHeal, Host: o.Host, From: o.From, To: o.To})
		side, others = others, side
	}
}

// promised is a gateway that is cut off together with a holder whose ticket has its slot,
// while the others have requests for it. Until its own lease is over it may go on telling
// the holder that the ticket lives.
func (g *generator) promised() {
	at, host := g.any(), g.r.IntN(g.Hosts)
	g.Tickets = true
	for range g.K {
		g.add(Op{At: at, Kind: OpTicket, Host: host, Hold: 4 * lease, Patience: time.Second + time.Duration(g.r.Int64N(int64(lease)))})
	}
	for range 20 * g.K {
		g.add(Op{At: at + lease/3, Kind: OpRequest, Host: g.r.IntN(g.Hosts), Hold: lease / 5})
	}
	g.apart(Op{At: at + lease/3, Kind: OpCut}, 1<<host, at+6*lease)
}

// headless is a cluster that loses its first leader together with a busy gateway,
// or with which that one is cut off.
func (g *generator) headless() {
	at, host := g.any(), g.r.IntN(g.Hosts)
	g.busy(at-lease/10, host)
	o := Op{At: at, Kind: OpCut, Host: host}
	if g.r.IntN(2) == 0 {
		g.apart(o, 1|1<<host, at+2*lease)
		return
	}
	g.apart(o, 1<<host, at+2*lease)
	g.add(Op{At: at, Kind: OpKill, Host: 0})
}

// all is the set of all hosts.
func (g *generator) all() uint { return uint(1)<<g.Hosts - 1 }

// host is the set of one of them.
func (g *generator) host() uint { return 1 << g.r.IntN(g.Hosts) }

// lasts returns when a fault that began then ends; half of them never do.
func (g *generator) lasts(at time.Duration) time.Duration {
	if g.r.IntN(2) == 0 {
		return g.End + time.Hour
	}
	return at + g.span()
}

// partialHeal cuts everything for a while and then heals all but one link.
func (g *generator) partialHeal() {
	at := g.any() / 2
	until := at + g.span()
	a, b := g.host(), g.host()
	for _, o := range []Op{
		{At: at, Kind: OpCut, From: g.all(), To: g.all()},
		{At: until, Kind: OpHeal, From: g.all(), To: g.all()},
		{At: until, Kind: OpCut, From: a, To: b},
		{At: until, Kind: OpCut, From: b, To: a},
	} {
		g.add(o)
	}
	healed := g.lasts(until)
	g.add(Op{At: healed, Kind: OpHeal, From: a, To: b})
	g.add(Op{At: healed, Kind: OpHeal, From: b, To: a})
}

// refuse is links that keep old connections and refuse new ones: from one gateway to
// another, to all, or from all to one. Then something else goes wrong.
func (g *generator) refuse() { g.limited(OpBar, OpUnbar) }

// narrow is the same for paths that lose long messages.
func (g *generator) narrow() { g.limited(OpNarrow, OpWiden) }

// lose is the same for letters of which half are lost.
func (g *generator) lose() { g.limited(OpLose, OpUnlose) }

func (g *generator) limited(begin, end Kind) {
	o := Op{At: g.any() / 2, Kind: begin, From: g.host(), To: g.host()}
	switch g.r.IntN(3) {
	case 0:
		o.From = g.all()
	case 1:
		o.To = g.all()
	}
	g.add(o)
	o.At, o.Kind = g.lasts(o.At), end
	g.add(o)
	[]func(){g.restart, g.pause, g.recover, g.suspect, g.changeK}[g.r.IntN(5)]()
}

// oneWay is a link, or all of a gateway's, on which nothing passes in one direction.
func (g *generator) oneWay() {
	o := Op{At: g.any(), Kind: OpCut, From: g.host(), To: g.host()}
	switch g.r.IntN(4) {
	case 0:
		o.From = g.all()
	case 1:
		o.To = g.all()
	}
	g.add(o)
	o.At, o.Kind = g.lasts(o.At), OpHeal
	g.add(o)
}

// flap is a link that comes and goes.
func (g *generator) flap() {
	a, b := g.host(), g.host()
	period := time.Duration(g.r.ExpFloat64() * float64(lease) / 3)
	for at := g.any(); at < g.End; at += 2*period + lease/30 {
		for _, side := range [][2]uint{{a, b}, {b, a}} {
			g.add(Op{At: at, Kind: OpCut, From: side[0], To: side[1]})
			g.add(Op{At: at + period, Kind: OpHeal, From: side[0], To: side[1]})
		}
	}
}

func (g *generator) leave() { g.point(Op{Kind: OpLeave}) }

// clocks run wrong within what leases allow, and wall clocks jump.
func (g *generator) clocks() {
	g.add(Op{At: g.any(), Kind: OpRate, Host: g.r.IntN(g.Hosts), Rate: 0.91 + 0.18*g.r.Float64()})
	g.add(Op{At: g.any(), Kind: OpStep, Host: g.r.IntN(g.Hosts), Hold: time.Duration(g.r.Int64N(int64(time.Hour))) - time.Hour/2})
}

// elect stops the leader for a time, about as long as it takes to elect another.
func (g *generator) elect() {
	g.add(Op{At: g.any(), Kind: OpElect, Hold: lease/3 + time.Duration(g.r.Int64N(int64(lease)))})
}

func (g *generator) suspect() { g.point(Op{Kind: OpSuspect}) }

// recover begins an epoch while clients come and leave.
func (g *generator) recover() {
	o := g.point(Op{Kind: OpRecover})
	for range 2 * g.K {
		came := o.At - time.Duration(g.r.Int64N(int64(20*g.Base)))
		g.add(Op{At: came, Kind: OpRequest, Host: g.r.IntN(g.Hosts), Hold: g.Base, Patience: time.Duration(g.r.Int64N(int64(40 * g.Base)))})
	}
}

// crash ends a process of which nobody hears that it has.
func (g *generator) crash() {
	o := g.point(Op{Kind: OpCrash})
	g.add(Op{At: o.At + g.span(), Kind: OpStart, Host: o.Host})
}

// write ends a process with one of its next writes: what comes after it is not on disk.
func (g *generator) write() {
	o := Op{At: g.any(), Kind: OpWrite, Host: g.r.IntN(g.Hosts), K: 1 + g.r.IntN(6)}
	g.add(o)
	g.add(Op{At: o.At + g.span(), Kind: OpStart, Host: o.Host})
	g.changeK()
}

// lastWrite ends a process with any of its writes, from the first on, in half of the scenarios.
func (g *generator) lastWrite(r *rand.Rand) {
	if g.Memory || r.IntN(2) == 0 {
		return
	}
	o := Op{Kind: OpWrite, Host: r.IntN(g.Members), K: 1 + r.IntN(80)}
	g.add(o)
	for at := time.Duration(0); at < g.End; at += lease / 2 {
		g.add(Op{At: at, Kind: OpStart, Host: o.Host, K: 1})
	}
}

// hang is a disk on which no write ends, for a while or for good. One view, or views all the time, come meanwhile.
func (g *generator) hang() {
	o := Op{At: g.any(), Kind: OpHang, Host: g.r.IntN(g.Hosts)}
	g.add(o)
	g.add(Op{At: g.lasts(o.At), Kind: OpUnhang, Host: o.Host})
	g.add(Op{At: o.At + g.span(), Kind: OpSetK, K: 1 + g.r.IntN(maxK)})
	every := time.Duration(50+g.r.IntN(400)) * time.Millisecond
	for i := range 40 * g.r.IntN(2) {
		g.add(Op{At: o.At + time.Duration(i)*every, Kind: OpSetK, K: 1 + g.r.IntN(maxK)})
	}
}

// restore puts an old copy of a disk back.
func (g *generator) restore() {
	g.changeK()
	g.add(Op{At: g.any(), Kind: OpRestore, Host: g.r.IntN(g.Hosts), K: g.r.IntN(101)})
}

// snap breaks connections.
func (g *generator) snap() {
	for range 1 + g.r.IntN(8) {
		g.add(Op{At: g.any(), Kind: OpBreak, Host: g.r.IntN(g.Hosts), To: uint(g.r.IntN(g.Hosts))})
	}
}

// depose is a busy gateway that nobody but the leader reaches, which is about to lose the lead.
func (g *generator) depose() {
	o := Op{At: g.any(), Kind: OpDepose, Host: g.r.IntN(g.Hosts), Hold: lease*6/10 + time.Duration(g.r.Int64N(int64(lease/2))), K: g.r.IntN(2)}
	g.add(o)
	g.busy(o.At, o.Host)
}
