package fuzz

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/kgate/kgate/lab/cluster"
)

// errStuck means that the line did not move though a majority of the voters was
// fully connected.
var errStuck = errors.New("the line does not move while the fault lasts")

// moving is how long the line may stand still while faults last that change no more: 2.2 leases and a
// second after a majority is back, and 1.1 leases and a second more if lost gateways had all tokens,
// docs/guarantees.md. From then on the bound is stillMoving: a path that loses long messages may only
// show when the first of them is sent there.
const (
	moving      = 3*lease + 3*lease/10 + 2*time.Second
	stillMoving = 2*lease + time.Second/2
)

// probeEvery is the time between two requests that try whether the line moves.
const probeEvery = 500 * time.Millisecond

// quick is the longest round trip that leases bear, docs/guarantees.md.
const quick = lease / 10

// connected returns the largest set of gateways, as bits, that can all open connections
// to each other over which long messages pass and which do not break at every other message (docs/guarantees.md:
// a link comes and goes), and have a majority of the voters among them; 0: there is none.
func (p *play) connected() uint {
	var best uint
	reach := make([]uint, p.Hosts)
	for a := range reach {
		for b := range reach {
			if !p.Left(a) && !p.Host(a).Hangs() && p.Passes(a, b) && p.Passes(b, a) {
				reach[a] |= 1 << b
			}
		}
	}
	for set := range uint(1) << p.Hosts {
		if bits.OnesCount(set) > bits.OnesCount(best) && clique(reach, set) && p.Majority(func(host int) bool { return set>>host&1 == 1 }) {
			best = set
		}
	}
	return best
}

func clique(reach []uint, set uint) bool {
	for a := range reach {
		if set>>a&1 == 1 && set&^reach[a] != 0 {
			return false
		}
	}
	return true
}

// moves judges progress while the faults last. Where gateways are fully connected that
// have a majority of the voters, as many serve within the bound as the largest such set
// has, beyond what the requests before take; and they go on. One whose links break again and again
// may have to stay out for a while. It may be others, which are connected as
// well: it is not known in advance which of two sets goes on.
func (p *play) moves() error {
	for _, bound := range []time.Duration{moving, stillMoving} {
		if err := p.serve(bound); err != nil {
			return err
		}
	}
	return nil
}

func (p *play) serve(bound time.Duration) error {
	probes := make([]*cluster.Request, p.Hosts)
	served := make([]bool, p.Hosts)
	enough := func() bool {
		n := 0
		for host, r := range probes {
			served[host] = served[host] || r != nil && r.Outcome() == "served"
			if served[host] || p.Waits(host) && p.connected()>>host&1 == 1 {
				n++
			}
		}
		return n >= bits.OnesCount(p.connected()) // some may leave meanwhile
	}
	end := p.Now() + bound + p.work()
	for most := end + p.UnknownFor(); p.Now() < end && !enough(); {
		if p.Spent() { // what is withheld is of lost tickets, for a time that the contract has
			end = min(p.Now()+bound+p.work(), most)
		}
		for host := range p.Hosts {
			if r := probes[host]; r == nil || r.Outcome() != "" {
				probes[host] = p.Request(host, time.Millisecond, 0)
				p.asked = append(p.asked, probes[host])
			}
		}
		if err := p.until(p.Now()+probeEvery, enough); err != nil {
			return err
		}
	}
	if !enough() {
		return fmt.Errorf("%w: %b are connected, voters %v, members %v: %v: %w", errStuck, p.connected(), p.votes(), p.View().Members, served, p.Settled(nil))
	}
	return nil
}

func (p *play) votes() []int { hosts, _ := p.Voters(); return hosts }
