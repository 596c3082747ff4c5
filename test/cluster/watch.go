package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/timing"
)

// told is what a gateway's status said at one moment.
type told struct {
	gateway         string
	asked, answered time.Time
	status          *admin.Status
}

// WatchStatus asks each gateway for its status twice a second until the test ends, and fails it then for
// each false word.
func (c *Cluster) WatchStatus(tb testing.TB) {
	tb.Helper()
	c.watched = true
	quit := make(chan struct{})
	var mu sync.Mutex
	var all []told
	var wg sync.WaitGroup
	look := func(g *Gateway) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		asked := time.Now()
		if s, err := g.Status(ctx); err == nil && time.Since(asked) < 2*time.Second { // else it stood still
			mu.Lock()
			defer mu.Unlock()
			all = append(all, told{g.Name, asked, time.Now(), s})
		}
	}
	ask := func(i int) { // the gateway at this place
		defer wg.Done()
		for {
			select {
			case <-quit:
				return
			case <-time.After(500 * time.Millisecond):
			}
			c.mu.Lock()
			g := c.Gateways[i]
			c.mu.Unlock()
			if !g.ended() {
				look(g)
			}
		}
	}
	for i := range c.Gateways {
		wg.Add(1)
		go ask(i)
	}
	tb.Cleanup(func() {
		close(quit)
		wg.Wait()
		f := c.facts()
		said := make(map[string]bool)
		for _, t := range all {
			for _, wrong := range f.judgeStatus(t) {
				if key := t.gateway + wrong; !said[key] { // the first time is enough
					said[key] = true
					tb.Errorf("the status of %s at %s has a false word: %s", t.gateway, t.asked.Format("15:04:05.000"), wrong)
				}
			}
		}
		tb.Logf("%d statuses judged", len(all))
	})
}

// fresh is how old at most what a gateway says of others may be.
const fresh = time.Second

// judgeStatus returns what is false in a status.
func (f *facts) judgeStatus(t told) []string {
	var wrong []string
	cluster := t.status.Cluster
	if most, of := f.reached(t, cluster), cluster.Voters; cluster.LossesTolerated >= 0 && cluster.LossesTolerated > most-(of/2+1) {
		wrong = append(wrong, fmt.Sprintf("%s: %d voters can be reached", cluster.Agreement(), most))
	}
	for _, m := range cluster.Members {
		if text := cluster.IfLost(m); text == "go on" && m.Votes && f.reached(t, cluster)-1 < cluster.Voters/2+1 {
			wrong = append(wrong, m.Name+" "+text+": it is one of a bare majority")
		}
	}
	for _, text := range t.status.Troubles() {
		if why := f.judgeTrouble(t, text); why != "" {
			wrong = append(wrong, fmt.Sprintf("%q: %s", text, why))
		}
	}
	return wrong
}

// reached counts the voters that the gateway reaches, or did at any time while what it says was
// fresh.
func (f *facts) reached(t told, cluster admin.Cluster) int {
	n := 0
	for _, m := range cluster.Members {
		if !m.Votes {
			continue
		}
		from := t.asked.Add(-timing.Slack() * fresh)
		if m.Name == t.gateway || f.reachedAt(t.gateway, m.Name, from, t.answered) {
			n++
		}
	}
	return n
}

// reachedAt reports whether one gateway could reach another at any time between.
func (f *facts) reachedAt(a, b string, from, to time.Time) bool {
	for at := from; !at.After(to); at = at.Add(50 * time.Millisecond) {
		if f.runsAt(b, at, at) && !f.cutWhole(a, b, at) {
			return true
		}
	}
	return false
}

// judgeTrouble says what is false in a sentence of the status.
func (f *facts) judgeTrouble(t told, text string) string {
	names := func(word string) string { before, _, _ := strings.Cut(text, word); return before }
	ofOther := func(word string) string {
		name := names(word)
		return unless(f.troubled(name, t.answered) || f.troubled(t.gateway, t.answered) || f.admits(name, t.answered) || f.admits(t.gateway, t.answered),
			"nothing was done to "+name)
	}
	switch {
	case strings.Contains(text, " is suspended"):
		return ofOther(" is suspended")
	case strings.Contains(text, " is lost"):
		return ofOther(" is lost")
	case strings.Contains(text, " cannot be reached from here"):
		return ofOther(" cannot be reached")
	case strings.Contains(text, " does not answer; its part"):
		if !Soak() {
			return "" // in time: the machine has other work
		}
		return ofOther(" does not answer")
	case strings.HasPrefix(text, "This gateway was lost"):
		return unless(len(f.of(t.gateway)) > 1 || f.admits(t.gateway, t.answered), "it has had one")
	case strings.Contains(text, " to answer, usually "):
		return "" // measured
	case strings.Contains(text, ": the client "): // there is one, which has all places
		return "no other client waits, and no queue is full"
	case strings.HasPrefix(text, "One more loss"), strings.HasPrefix(text, "No majority"), strings.HasPrefix(text, "No gateway leads"),
		strings.Contains(text, " admits nothing: "), strings.Contains(text, " slots withheld"):
		return unless(!Soak() || f.anyTroubled(t.answered) || slices.ContainsFunc(f.runs, func(r *life) bool { return f.admits(r.name, t.answered) }), "nothing was done to any gateway")
	default:
		return "nobody said when this is true: see judgeTrouble"
	}
}
