package fuzz

import (
	"slices"
	"time"
)

// This file has the operations that depend on who leads and who votes when they happen.

// What follows from an operation that does not say to which host it happens.
const (
	resumes = iota
	isKilled
	isHealed
)

// later has something happen to a host in a while.
func (p *play) later(d time.Duration, what, host int) {
	p.At(p.Now()+d, uint64(len(p.Ops)+what*p.Hosts+host))
}

func (p *play) follows(what, host int) {
	switch what {
	case resumes:
		p.Resume(host)
	case isKilled:
		p.end(Op{Kind: OpKill, Host: host})
	case isHealed:
		p.apart(host, nil, p.Heal)
	}
}

// apart does something to the ways between a host and all others but some.
func (p *play) apart(host int, but []int, do func(from, to int)) {
	for other := range p.Hosts {
		if other != host && !slices.Contains(but, other) {
			do(host, other)
			do(other, host)
		}
	}
}

// depose leaves a host with nobody but the leader, which is killed a while later; or stands still
// for that while, and reaches nobody but that host, while the others elect another one.
func (p *play) depose(o Op) {
	l := p.Leads()
	if l < 0 || l == o.Host || p.Paused(l) {
		return
	}
	p.apart(o.Host, []int{l}, p.Cut)
	if o.K == 0 {
		p.apart(l, []int{o.Host}, p.Cut)
		p.Pause(l)
		p.later(o.Hold, resumes, l)
	} else {
		p.later(o.Hold, isKilled, l)
	}
	p.later(o.Hold+3*lease, isHealed, o.Host)
	p.later(o.Hold+3*lease, isHealed, l)
}

// end ends a process; in Liveness mode only if the others can go on without it.
func (p *play) end(o Op) {
	if p.Mode == Liveness && !p.MayLose(o.Host) {
		return
	}
	h := p.Host(o.Host)
	switch o.Kind {
	case OpKill:
		h.Kill()
	case OpCrash:
		h.Crash()
	case OpRestore:
		p.restore(o)
	default:
		p.Leave(o.Host)
	}
}

// restore puts an old copy of a host's disk back, if the hosts that know newer entries run: the host asks
// them before it votes.
func (p *play) restore(o Op) {
	h := p.Host(o.Host)
	voters, votes := p.Voters()
	if h.Memory || h.Core == nil || votes < 3 || p.three[o.Host] == 0 {
		return
	}
	for a := range p.Hosts {
		for b := range p.Hosts {
			if a != b && !p.Passes(a, b) && (slices.Contains(voters, a) || a == o.Host) && (slices.Contains(voters, b) || b == o.Host) {
				return
			}
		}
	}
	for _, other := range voters {
		if p.Host(other).Applied() < h.Applied() {
			return // its own copy may have been an old one
		}
	}
	h.Kill()
	keep := p.three[o.Host] + o.K*(h.Records()-p.three[o.Host])/100
	if err := h.Restore(keep); err != nil {
		panic(err)
	}
	h.Start()
}
