package serfring

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// joinLoop asks the join list until another gateway is alive, and again
// whenever this one is left alone.
func (a *Agent) joinLoop() {
	if len(a.config.Join) == 0 {
		return
	}
	ticker := time.NewTicker(a.config.RetryInterval)
	defer ticker.Stop()
	for {
		if a.alone() {
			a.join()
		} else {
			a.setProblem(nil)
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
	errs := make([]error, len(a.config.Join))
	var wg sync.WaitGroup
	for i, addr := range a.config.Join {
		wg.Go(func() {
			if addr == a.Addr() {
				return
			}
			if _, err := a.serf.Join([]string{addr}, true); err != nil {
				errs[i] = classify(err)
			}
		})
	}
	wg.Wait()
	select {
	case <-a.stop:
		return
	default:
	}
	err := errors.Join(errs...)
	if !a.alone() || err == nil {
		a.setProblem(nil)
		return
	}
	a.setProblem(err)
	hint := "still trying; check the join list, the gossip port and the firewall between the gateways (UDP and TCP)"
	cause := "no gateway of the join list answers"
	switch {
	case errors.Is(err, ErrName):
		hint = "give every gateway a name of its own; if the other one is this gateway's last run, this goes away in a few seconds"
		cause = "another gateway has this name"
	case errors.Is(err, ErrKey):
		hint = "give every gateway the same cluster.gossip_key"
		cause = "gossip key differs"
	}
	a.advise.say(logLevel, cause, "hint", hint, "name", a.config.Name, "join", a.config.Join, "error", err)
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
		if p.State != memberlist.StateAlive {
			continue
		}
		theirs := endpointOf(net.IP(p.Addr), p.Port)
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
