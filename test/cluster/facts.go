package cluster

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
)

// facts are what a test did to a cluster, by which [judgeLog] and [WatchStatus] judge what
// its gateways say.
type facts struct {
	runs  []*life
	cuts  []Cut
	lease time.Duration
	// caused are messages that the test causes by other means, and checks itself.
	caused []string
	open   bool // without a key or certificates
	// strict: every message has to be known, and the upstreams are well. Other suites have upstreams, and
	// strangers, that do as they like.
	strict bool
}

// Cut is a stretch of time in which packets from one gateway to another were not what they are.
type Cut struct {
	From, To string // names
	// It began at some time from Since to Held, and lasted until Until; zero: it still does.
	Since, Held, Until time.Time
	// Refused: connections are, by a reset. Partial: some packets pass, so that links may stay up.
	Refused, Partial bool
}

// life is one of a gateway's process.
type life struct {
	name         string
	began, ended time.Time // ended: zero, it runs
	acts         []act
	lines        []line
}

// act is a signal that the test sent to a process.
type act struct {
	at     time.Time
	signal syscall.Signal
}

// line is one that a gateway logged.
type line struct {
	Record
	at  time.Time
	who *life
}

func (l *line) level() string { return l.Text("level") }
func (l *line) msg() string   { return l.Text("msg") }

// strictWords is for the tests of this package.
var strictWords bool

// Causes tells the judge of words that the test makes gateways log these messages, or those that a
// stranger's visit has, and checks itself whether they are true.
func (c *Cluster) Causes(messages ...string) { c.caused = append(c.caused, messages...) }

// facts collects them.
func (c *Cluster) facts() *facts {
	f := &facts{lease: c.opt.Lease, caused: c.caused, strict: strictWords || c.watched, open: c.opt.KeyFile == "" && c.opt.TLS == nil}
	if c.opt.Cuts != nil {
		f.cuts = c.opt.Cuts()
	}
	for _, g := range c.ever {
		f.runs = append(f.runs, g.life())
	}
	return f
}

// life returns that of a gateway's process so far.
func (g *Gateway) life() *life {
	r := &life{name: g.Name, began: g.began}
	g.mu.Lock()
	r.acts, r.ended = slices.Clone(g.acts), g.gone
	g.mu.Unlock()
	for _, record := range g.Log.all() {
		at, err := time.Parse(time.RFC3339Nano, record.Text("time"))
		if err == nil {
			r.lines = append(r.lines, line{Record: record, at: at, who: r})
		}
	}
	return r
}

// margin is how long after a fault its words may come.
func (f *facts) margin() time.Duration { return timing.Slack() * (2*f.lease + 2*time.Second) }

// of returns the lives of the named gateway.
func (f *facts) of(name string) []*life {
	var all []*life
	for _, r := range f.runs {
		if r.name == name {
			all = append(all, r)
		}
	}
	return all
}

// runsAt reports whether the gateway's process ran and was not stopped at any time between.
func (f *facts) runsAt(name string, from, to time.Time) bool {
	for _, r := range f.of(name) {
		if !r.began.After(from) && (r.ended.IsZero() || r.ended.After(to)) {
			return !r.stoodStill(from, to)
		}
	}
	return false
}

// stoodStill reports whether the process was stopped, or told to end, at any time between.
func (r *life) stoodStill(from, to time.Time) bool {
	still := false
	for _, a := range r.acts {
		if a.at.After(to) {
			break
		}
		if a.at.After(from) || a.signal != syscall.SIGCONT {
			still = true
		}
		if a.signal == syscall.SIGCONT && !a.at.After(from) {
			still = false
		}
	}
	return still
}

// apart reports whether packets between the two gateways were cut at any time between; an
// empty name stands for any gateway.
func (f *facts) apart(a, b string, from, to time.Time) bool {
	is := func(name, want string) bool { return want == "" || name == want }
	return slices.ContainsFunc(f.cuts, func(c Cut) bool {
		return (is(c.From, a) && is(c.To, b) || is(c.From, b) && is(c.To, a)) && c.Since.Before(to) && (c.Until.IsZero() || c.Until.After(from))
	})
}

// cutWhole reports whether no link between the two gateways could work then.
func (f *facts) cutWhole(a, b string, at time.Time) bool {
	return slices.ContainsFunc(f.cuts, func(c Cut) bool {
		return (c.From == a && c.To == b || c.From == b && c.To == a) && !c.Partial && !c.Held.After(at) && (c.Until.IsZero() || c.Until.After(at))
	})
}

// troubled reports whether anything was done to the gateway, or to its network, lately.
func (f *facts) troubled(name string, at time.Time) bool {
	return !f.runsAt(name, at.Add(-f.margin()), at) || f.apart(name, "", at.Add(-f.margin()), at)
}

// anyTroubled reports whether anything was done to any of the gateways lately.
func (f *facts) anyTroubled(at time.Time) bool {
	return slices.ContainsFunc(f.runs, func(r *life) bool { return f.troubled(r.name, at) })
}

// admits reports whether the gateway itself says that it lost its lease, lately or soon: what others say
// of its loss is true then, whatever the cause. It may not have noticed before it ended.
func (f *facts) admits(name string, at time.Time) bool {
	return f.admitsSince(name, at.Add(-f.margin()), at)
}

// admitsSince reports whether it says so after from, or soon after at.
func (f *facts) admitsSince(name string, from, at time.Time) bool {
	return slices.ContainsFunc(f.of(name), func(r *life) bool {
		return slices.ContainsFunc(r.lines, func(l line) bool {
			lost := l.msg() == "lease lost: rejoining as a new incarnation" || l.msg() == "rejoining as a new incarnation"
			return lost && l.at.After(from) && l.at.Sub(at) < f.margin()
		})
	})
}

// says reports whether any gateway logs the message of the named one, lately or soon.
func (f *facts) says(of, part string, at time.Time) bool {
	return slices.ContainsFunc(f.runs, func(r *life) bool {
		return slices.ContainsFunc(r.lines, func(l line) bool {
			return strings.Contains(l.msg(), part) && l.Text("name") == of && at.Sub(l.at).Abs() < f.margin()
		})
	})
}

// judgeWords fails the test for each false word in the logs of the gateways.
func (c *Cluster) judgeWords(tb testing.TB) {
	tb.Helper()
	f := c.facts()
	for _, wrong := range f.judgeLogs() {
		tb.Error(wrong)
	}
}
