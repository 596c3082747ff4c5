package serfring

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Memberlist looks every GossipInterval whether it has something to pass on, and wakes an
// idle process up for it. So that interval is long here, and while there is news the agent
// pings some members more often: a ping and its answer carry what their senders have to pass on.
const (
	calmInterval = 200 * time.Millisecond
	newsInterval = 50 * time.Millisecond
	// newsFor is how long news may take to get everywhere.
	newsFor = time.Second
	// newsTo is how many members are pinged at a time.
	newsTo = 3
)

// spread pings members while there is news, until ended is closed.
func (a *Agent) spread(ended <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var until time.Time
	for {
		select {
		case <-ended:
			return
		case <-a.news:
			if time.Now().Before(until) {
				until = time.Now().Add(newsFor)
				continue // the timer runs
			}
			until = time.Now().Add(newsFor)
		case <-timer.C:
		}
		if time.Now().Before(until) {
			a.pingSome()
			timer.Reset(newsInterval)
		}
	}
}

// pingSome pings a few members, chosen at random. Each ping ends within ProbeTimeout.
func (a *Agent) pingSome() {
	members := slices.DeleteFunc(a.Members(), func(m Member) bool { return m.Name == a.config.Name || m.Status != StatusAlive })
	rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	for _, m := range members[:min(len(members), newsTo)] {
		at, err := netip.ParseAddrPort(m.PeerAddr)
		if err != nil {
			continue // gossip's addresses are no names
		}
		a.pings.Go(func() {
			_, _ = a.serf.Memberlist().Ping(m.Name, net.UDPAddrFromAddrPort(at)) // probes notice who is gone
		})
	}
}
