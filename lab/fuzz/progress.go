package fuzz

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/kgate/kgate/lab/cluster"
)

// ErrStuck means that the line did not move though a majority of the voters was
// fully connected.
var ErrStuck = errors.New("the line does not move while the fault lasts")

// moving is how long the line may stand still while faults last that change no more:
// leases that ran have to be over, a leader has to be elected, and those that lost
// their leases have to come back.
const moving = 2*lease + 3*time.Second

// probeEvery is the time between two requests that try whether the line moves.
const probeEvery = 500 * time.Millisecond

// connected returns voters that are a majority and can all open connections to each
// other without delay, as bits; 0: there are none.
func (p *play) connected() uint {
	voters := p.Voters()
	var best uint
	for set := range uint(1) << len(voters) {
		if bits.OnesCount(set) > max(bits.OnesCount(best), len(voters)/2) && p.clique(voters, set) {
			best = set
		}
	}
	var hosts uint
	for i, v := range voters {
		if best>>i&1 == 1 {
			hosts |= 1 << v
		}
	}
	return hosts
}

func (p *play) clique(voters []int, set uint) bool {
	for i, a := range voters {
		for j, b := range voters {
			if set>>i&1 == 1 && set>>j&1 == 1 && (!p.Dials(a, b) || p.Muted(a, b) || p.slow[[2]int{a, b}] > 0) {
				return false
			}
		}
	}
	return true
}

// moves judges progress while the faults last. Where a majority of the voters is
// fully connected, no fewer gateways than these serve within the bound, beyond what
// the requests before take: these, or others that are connected as well. Where all
// copies of a lost gateway's tickets are lost, tokens are withheld for much longer.
func (p *play) moves() error {
	if p.connected() == 0 {
		return nil
	}
	probes := make([]*cluster.Request, p.Hosts)
	served := make([]bool, p.Hosts)
	enough := func() bool {
		n := 0
		for host, r := range probes {
			served[host] = served[host] || r != nil && r.Outcome() == "served"
			if served[host] {
				n++
			}
		}
		return n >= bits.OnesCount(p.connected()) // some may leave meanwhile
	}
	for end := p.Now() + moving + p.work(); p.Now() < end && !enough(); {
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
	if !enough() && !p.Unknown() {
		return fmt.Errorf("%w: %b are connected, voters %v, members %v: %v: %w", ErrStuck, p.connected(), p.Voters(), p.View().Members, served, p.Settled())
	}
	return nil
}
