package serfring

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/kgate/kgate/internal/transport"
)

// settleRounds is how often a gateway that has joined exchanges its state with
// those it sees. One that returns from another address is ignored by gateways
// that have not given up its last run yet, and gossip does not repeat itself.
const settleRounds = 3

// The pauses between two rounds of joining, in retry intervals: the first ones
// are short, since gateways are often started together; an address that does
// not answer for long is asked more and more rarely; and one round in a while
// goes on for ever, so that gateways that have lost sight of each other find
// each other again.
const (
	firstPause   = 0.25
	longestPause = 5.0
	slowPause    = 30.0
)

// joinLoop asks the join list until each of its addresses has answered or is
// a living gateway's, then goes on slowly. Whom one finds there may know
// others, but need not: gateways that start together and are each told of the
// next one form islands as long as nobody asks on.
func (a *Agent) joinLoop() {
	if len(a.config.Join) == 0 {
		return
	}
	answered := make(map[string]bool)
	for pause, settle := firstPause, settleRounds; ; {
		alone := a.alone()
		if alone {
			clear(answered)
			settle = settleRounds
		}
		next := slowPause
		if pending := a.pending(answered); len(pending) > 0 {
			a.join(pending, answered)
			next, pause = pause, min(2*pause, a.longest())
		}
		if settle > 0 {
			next = min(next, 1)
		}
		if settle > 0 && !alone {
			settle--
			a.setProblem(nil)
			if err := a.ask(a.others(), nil); err != nil {
				a.config.Logger.Debug("exchanging state", slog.Any("error", err))
			}
		}
		if next == slowPause {
			clear(answered) // all of them again, then
			pause = firstPause
		}
		if !a.wait(next) {
			return
		}
	}
}

// longest returns the longest pause while an address has not answered.
func (a *Agent) longest() float64 {
	if a.alone() {
		return 1
	}
	return longestPause
}

// wait waits for so many retry intervals, give or take a quarter, and reports
// whether the agent goes on.
func (a *Agent) wait(intervals float64) bool {
	d := intervals * (0.75 + rand.Float64()/2) * float64(a.config.RetryInterval)
	timer := time.NewTimer(time.Duration(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return !a.stopped() // also if both are due
	case <-a.stop:
		return false
	}
}

func (a *Agent) stopped() bool {
	select {
	case <-a.stop:
		return true
	default:
		return false
	}
}

// pending returns the addresses of the join list that have not answered and are
// not those of living gateways.
func (a *Agent) pending(answered map[string]bool) []string {
	known := make(map[string]bool)
	for _, m := range a.Members() {
		if m.Status == StatusAlive {
			known[m.PeerAddr] = true // this gateway's own among them
		}
	}
	return slices.DeleteFunc(slices.Clone(a.config.Join), func(addr string) bool { return answered[addr] || known[addr] })
}

// join asks addresses of the join list, and notes which have answered.
func (a *Agent) join(addrs []string, answered map[string]bool) {
	err := a.ask(addrs, answered)
	switch {
	case a.stopped():
	case err == nil:
		a.setProblem(nil)
	case !a.alone():
		a.setProblem(nil)
		if !errors.Is(err, errNobody) { // which is usual: one of several is down
			a.complain(err)
		}
	default:
		a.complain(err) // before anybody can ask for the problem and look in the log
		a.setProblem(err)
	}
}

// patience is how long nobody may answer, or one that has just ended may break off, before that is
// logged: gateways that start together meet in a moment.
const patience = 3 * time.Second

// complain says once a minute what keeps this gateway from joining, or, if it sees others, what is wrong at an address.
func (a *Agent) complain(err error) {
	log := a.config.Logger
	name, list, cause := slog.String("name", a.config.Name), slog.Any("join", a.config.Join), slog.Any("error", err)
	switch {
	case errors.Is(err, errName):
		if a.advise.once.First("join: name") {
			log.Warn("another gateway has this name", name, list, cause, slog.String("hint", nameHint))
		}
	case time.Since(a.began) < patience:
	case errors.Is(err, errKey), errors.Is(err, errBroken), errors.Is(err, errPort):
		hint := slog.String("hint", "still trying; give every gateway the same cluster.key_file, or certificates of one authority; check that the join list has peer ports")
		switch first := a.advise.once.First("join: key"); {
		case first && a.alone():
			log.Warn("not joined", name, list, cause, hint)
		case first:
			log.Warn("an address of the join list does not let this gateway in", name, list, cause, hint)
		}
	case a.advise.once.First("join: nobody"):
		log.Warn("no gateway of the join list answers", name, list, cause, slog.String("hint",
			"still trying; check the join list, which has peer ports, and the firewall between the gateways"))
	default: // said within the last minute
	}
}

// ask exchanges states with the agents at the addresses, all at once: a machine
// that swallows packets must not delay the others. It notes which have answered,
// unless that is nil.
func (a *Agent) ask(addrs []string, answered map[string]bool) error {
	errs := make([]error, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		if addr == a.config.Links.Addr().String() {
			continue
		}
		wg.Go(func() {
			if _, err := a.serf.Join([]string{addr}, true); err != nil {
				errs[i] = classify(err)
			}
		})
	}
	wg.Wait()
	for i, addr := range addrs {
		if answered != nil && errs[i] == nil {
			answered[addr] = true
		}
	}
	if err := errors.Join(errs...); err != nil {
		return unanswered{err}
	}
	return nil
}

// unanswered has an error for each address, and writes them in one line.
type unanswered struct{ error }

func (u unanswered) Error() string { return strings.ReplaceAll(u.error.Error(), "\n", "; ") }
func (u unanswered) Unwrap() error { return u.error }

// others returns where some of the living others gossip.
func (a *Agent) others() []string {
	const enough = 16
	var addrs []string
	for _, m := range a.Members() {
		if m.Name != a.config.Name && m.Status == StatusAlive && len(addrs) < enough {
			addrs = append(addrs, m.Name+"/"+m.PeerAddr) // as memberlist writes it
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

// failedDial is how memberlist begins to say that nothing could be reached at an address.
var failedDial = regexp.MustCompile(`failed to join (\S+): dial tcp \S+: (?:connect: )?`)

// classify turns what memberlist says into one of this package's errors.
func classify(err error) error {
	text := failedDial.ReplaceAllString(oneLine(err.Error()), "$1: ")
	switch {
	case strings.Contains(text, duplicateName), strings.Contains(text, transport.TwinText):
		return fmt.Errorf("%w: %s", errName, text)
	default:
		return fmt.Errorf("%w: %s", cmp.Or(ended(text), errNobody), text)
	}
}

// oneLine returns the errors of a list that memberlist has written with a head, and one
// on each line.
func oneLine(text string) string {
	_, list, found := strings.Cut(text, "occurred:\n\t* ")
	if !found {
		return text
	}
	return strings.ReplaceAll(strings.TrimSpace(list), "\n\t* ", "; ")
}

// mergeGuard refuses the state of a peer that has a live gateway of a name
// which this one knows alive elsewhere.
type mergeGuard Agent

var _ memberlist.MergeDelegate = (*mergeGuard)(nil)

// NotifyMerge is called while joining and while being joined, before anything
// is taken over.
func (g *mergeGuard) NotifyMerge(peers []*memberlist.Node) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.self == "" {
		return nil // still starting
	}
	for _, p := range peers {
		// A suspected one counts as well: until it is given up, memberlist
		// ignores whoever says the same name from another address.
		if p.State != memberlist.StateAlive && p.State != memberlist.StateSuspect {
			continue
		}
		theirs := endpointOf(p.Addr, p.Port)
		known, ours := g.members[p.Name], g.self
		if p.Name != g.config.Name {
			if known.Status != StatusAlive {
				continue
			}
			ours = known.PeerAddr
		}
		if theirs != ours {
			return fmt.Errorf("%s: %q at %s and at %s", duplicateName, p.Name, ours, theirs)
		}
	}
	return nil
}
