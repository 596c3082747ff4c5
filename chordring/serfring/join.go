package serfring

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// settleRounds is how often a gateway that has joined exchanges its state with
// those it sees. One that returns from another address is ignored by gateways
// that have not given up its last run yet, and gossip does not repeat itself.
const settleRounds = 3

// joinLoop asks the join list until another gateway is alive, and again
// whenever this one is left alone.
func (a *Agent) joinLoop() {
	if len(a.config.Join) == 0 {
		return
	}
	ticker := time.NewTicker(a.config.RetryInterval)
	defer ticker.Stop()
	settle := settleRounds
	for {
		select {
		case <-a.stop: // also if the ticker is due as well
			return
		default:
		}
		switch {
		case a.alone():
			settle = settleRounds
			a.join()
		case settle > 0:
			settle--
			a.setProblem(nil)
			if err := a.ask(a.others()); err != nil {
				a.config.Logger.Debug("exchanging state", slog.Any("error", err))
			}
		}
		select {
		case <-ticker.C:
		case <-a.stop:
			return
		}
	}
}

// join asks every address at once: a machine that swallows packets must not
// delay the others.
func (a *Agent) join() {
	err := a.ask(a.config.Join)
	select {
	case <-a.stop:
		return
	default:
	}
	if !a.alone() || err == nil {
		a.setProblem(nil)
		return
	}
	a.setProblem(err)
	a.complain(err)
}

// complain says once a minute what keeps this gateway from joining.
func (a *Agent) complain(err error) {
	log := a.config.Logger
	name, list, cause := slog.String("name", a.config.Name), slog.Any("join", a.config.Join), slog.Any("error", err)
	switch {
	case errors.Is(err, ErrName):
		if a.advise.once.First("join: name") {
			log.Warn("not joined: another gateway has this name", name, list, cause, slog.String("hint",
				"give every gateway a name of its own; if the other one is this gateway's last run, this goes away in a few seconds"))
		}
	case errors.Is(err, ErrKey):
		if a.advise.once.First("join: key") {
			log.Warn("not joined: gossip key differs", name, list, cause,
				slog.String("hint", "give every gateway the same cluster.key_file, or the same gossip key"))
		}
	case a.advise.once.First("join: nobody"):
		log.Warn("no gateway of the join list answers", name, list, cause, slog.String("hint",
			"still trying; check the join list, the gossip port and the firewall between the gateways (UDP and TCP)"))
	default: // said within the last minute
	}
}

// ask exchanges states with the agents at the addresses.
func (a *Agent) ask(addrs []string) error {
	errs := make([]error, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		if addr == a.Addr() {
			continue
		}
		wg.Go(func() {
			if _, err := a.serf.Join([]string{addr}, true); err != nil {
				errs[i] = classify(err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// others returns where some of the living others gossip.
func (a *Agent) others() []string {
	const enough = 16
	var addrs []string
	for _, m := range a.Members() {
		if m.Name != a.config.Name && m.Status == StatusAlive && len(addrs) < enough {
			addrs = append(addrs, m.Addr)
		}
	}
	return addrs
}

func (a *Agent) alone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.members {
		if m.Name != a.config.Name && m.Status == StatusAlive {
			return false
		}
	}
	return true
}

func (a *Agent) setProblem(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.problem = err
}

// classify turns what memberlist says into one of this package's errors.
func classify(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, duplicateName):
		return fmt.Errorf("%w: %w", ErrName, err)
	case speaksOfKeys(text):
		return fmt.Errorf("%w: %w", ErrKey, err)
	default:
		return fmt.Errorf("%w: %w", ErrNobody, err)
	}
}

// speaksOfKeys recognises memberlist's errors about encryption; it has no
// typed ones. A peer with another key drops our message and closes: what we
// see then is an EOF while reading its answer.
func speaksOfKeys(text string) bool {
	for _, s := range []string{
		"no installed keys could decrypt",
		"encryption is configured",
		"encryption is not configured",
		"unsupported encryption version",
	} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return strings.HasSuffix(strings.TrimSpace(text), "EOF")
}

// duplicateName marks the errors of mergeGuard: they come back from memberlist
// as text.
const duplicateName = "the name is in use by a live gateway"

// mergeGuard refuses the state of a peer that has a live gateway of a name
// which this one knows alive elsewhere.
type mergeGuard Agent

var _ memberlist.MergeDelegate = (*mergeGuard)(nil)

// NotifyMerge is called while joining and while being joined, before anything
// is taken over.
func (g *mergeGuard) NotifyMerge(peers []*memberlist.Node) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.self == (endpoint{}) {
		return nil // still starting
	}
	for _, p := range peers {
		// A suspected one counts as well: until it is given up, memberlist
		// ignores whoever says the same name from another address.
		if p.State != memberlist.StateAlive && p.State != memberlist.StateSuspect {
			continue
		}
		theirs := endpointOf(p.Addr, p.Port)
		known, ours := g.members[p.Name], g.self.String()
		if p.Name != g.config.Name {
			if known.Status != StatusAlive {
				continue
			}
			ours = known.Addr
		}
		if theirs.String() != ours {
			return fmt.Errorf("%s: %q at %s and at %s", duplicateName, p.Name, ours, theirs)
		}
	}
	return nil
}
