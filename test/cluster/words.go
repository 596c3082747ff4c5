package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// claim holds a line of the log to the facts. It returns what is false; empty: nothing is.
type claim func(f *facts, l *line) string

// claims has every message of level WARN or ERROR that gateways may log while a test does something to
// them, and those of level INFO that say what became of another gateway. Beside these a test
// says itself what it causes: [Cluster.Causes]. What is not here is a defect, or new: then this
// is where to say when it is true.
var claims = map[string]claim{
	"gateway lost: its slots come back when its lease has run out": wasLost,
	"gateway lost: its slots have come back":                       wasLost,
	"witness lost":                                                 wasLost,
	"gateway left":                                                 leftInOrder,
	"lease lost: rejoining as a new incarnation":                   leaseLost,
	"cannot reach peer":                                            cannotReach("peer"),
	"a gateway that gossip sees does not answer on its peer port":  cannotReach("name"),
	"not in the cluster":                                           notIn,
	"request broken off":                                           slotLost,
	"connection broken off":                                        slotLost,
	"upstream is unhealthy":                                        wellUpstream,
	"upstream is silent":                                           wellUpstream,
	"upstream failed":                                              wellUpstream,
	"upstream fails requests":                                      wellUpstream,
	"upstream is slow":                                             measured,
	"the disk of data_dir is slow":                                 measured,
	"a certificate expires soon: replace the file, no restart is needed": measured,
	"cluster.insecure: anybody who can reach this address can read and change k, take slots and act as a gateway": func(f *facts, _ *line) string {
		return unless(f.open, "the cluster has a key or certificates")
	},
	"a gateway was refused: its name is in use": namedTwice,
	"another gateway has this name":             namedTwice,
	"no gateway of the join list answers":       afterTrouble,
	"handing leadership over: gateways that are alive cannot reach this one, or the voters cannot": afterTrouble,

	"requests were aborted":                                                              ending,
	"stopped without leaving gossip":                                                     ending,
	"message to a peer is lost":                                                          afterTrouble,
	"stopped without leaving the cluster":                                                ending,
	"gossip does not carry the new incarnation yet":                                      afterTrouble,
	"a gateway is not let in because it does not reach a member":                         afterTrouble,
	"a gateway is not let in because round trips to it take too long":                    afterTrouble,
	"a gateway has lost what its disk had taken: leading in another term":                afterTrouble,
	"aborted requests have not ended yet: this gateway waits for them before it rejoins": afterTrouble,

	"the tickets of lost gateways are not known: the tokens that these may have are withheld until they have expired":      afterTrouble,
	"requests are still in flight: stopping without leaving the cluster; their slots come back when the lease has run out": ending,
}

// judgeLogs returns every line that is false, with what is.
func (f *facts) judgeLogs() []string {
	var wrong []string
	said := make(map[string]bool)
	for _, r := range f.runs {
		for i := range r.lines {
			l := &r.lines[i]
			judge, known := claims[l.msg()]
			serious := l.level() == "WARN" || l.level() == "ERROR"
			untrue := ""
			switch {
			case slices.Contains(f.caused, l.msg()) || !known && (!serious || !f.strict):
			case !known:
				untrue = "nobody said when this is true: see claims in test/cluster/words.go, and Cluster.Causes"
			default:
				untrue = judge(f, l)
			}
			if key := r.name + l.msg(); untrue != "" && !said[key] { // the first is enough
				said[key] = true
				wrong = append(wrong, fmt.Sprintf("%s logs a false word, at %s: %v\n\t%s", r.name, l.at.Format("15:04:05.000"), l.Record, untrue))
			}
		}
	}
	return wrong
}

func unless(ok bool, what string) string {
	if ok {
		return ""
	}
	return what
}

// wellUpstream: those of the strict tests serve.
func wellUpstream(f *facts, _ *line) string { return unless(!f.strict, "the upstream is well") }

// measured says what the gateway measured: nobody knows better.
func measured(*facts, *line) string { return "" }

// afterTrouble: on a machine with other work, time alone does it.
func afterTrouble(f *facts, l *line) string {
	return unless(!Soak() || f.anyTroubled(l.at), "nothing was done to any gateway")
}

// ending is said only by one that was told to end.
func ending(_ *facts, l *line) string {
	told := slices.ContainsFunc(l.who.lines, func(o line) bool {
		return strings.HasPrefix(o.msg(), "stopping") || strings.HasPrefix(o.msg(), "draining")
	})
	return unless(told, "it was not told to end")
}

// wasLost: the gateway was, as the test did that, or as it says itself; and for the reason that is given.
func wasLost(f *facts, l *line) string {
	name, reason := l.Text("name"), l.Text("reason")
	again, from := strings.Contains(reason, "it has joined again as another incarnation"), l.at.Add(-f.margin())
	if again || l.msg() == "gateway lost: its slots have come back" {
		from = time.Time{} // while no majority is there, nobody can join again; and one that was away learns it late
	}
	before := func(r *life) bool { return !r.ended.IsZero() && r.ended.After(from) && r.ended.Before(l.at) }
	switch {
	case strings.Contains(reason, "it was stopped in order"):
		return "that is no loss"
	case !f.troubled(name, l.at) && !f.apart(name, "", from, l.at) && !slices.ContainsFunc(f.of(name), before) && !f.admitsSince(name, from, l.at):
		return "nothing was done to " + name + ", and it does not say that it lost its lease"
	case again:
		return unless(len(f.of(name)) > 1 || f.admitsSince(name, from, l.at), name+" has had one incarnation")
	default:
		return ""
	}
}

// leftInOrder: it did, as it says itself, or it was told to and has ended.
func leftInOrder(f *facts, l *line) string {
	name := l.Text("name")
	if reason := l.Text("reason"); !strings.Contains(reason, "it was stopped in order") {
		return "that is a loss: " + reason
	}
	for _, r := range f.of(name) {
		if slices.ContainsFunc(r.lines, func(o line) bool { return strings.HasPrefix(o.msg(), "stopping") && !o.at.After(l.at) }) {
			return ""
		}
	}
	return name + " was not stopped"
}

// leaseLost: the others have agreed on that, or they were too few, or too far, to renew it.
func leaseLost(f *facts, l *line) string {
	return unless(f.anyTroubled(l.at) || f.says(l.who.name, "gateway lost", l.at) || f.says(l.who.name, "witness lost", l.at),
		"nothing was done to any gateway, and no other one says that it is lost")
}

// slotLost: where the cause is a lost slot, the lease is lost, too.
func slotLost(_ *facts, l *line) string {
	if l.Text("cause") != "the slot was lost" {
		return ""
	}
	return unless(slices.ContainsFunc(l.who.lines, func(o line) bool {
		return strings.HasPrefix(o.msg(), "lease lost") && o.at.Sub(l.at).Abs() < 2*time.Second
	}), "the gateway has not lost its lease")
}

// cannotReach: something was done to one of the two. Who refuses a connection does not listen.
func cannotReach(key string) claim {
	return func(f *facts, l *line) string {
		name, self := l.Text(key), l.who.name
		const before = 4 * time.Second // it says so three seconds after the first failure
		switch {
		case name == self:
			return "that is itself"
		case strings.Contains(l.Text("error"), "connection refused"):
			refused := !f.runsAt(name, l.at.Add(-before), l.at) || slices.ContainsFunc(f.cuts, func(c Cut) bool { return c.Refused }) || len(f.of(name)) > 1
			return unless(refused, name+" listens")
		case !Soak() && strings.Contains(l.Text("error"), "time"):
			return "" // on a machine with other work things do take too long
		default:
			return unless(f.troubled(name, l.at) || f.troubled(self, l.at), "nothing was done to either")
		}
	}
}

var (
	toStart = regexp.MustCompile(`start ([^,;]+) again`)
	counted = regexp.MustCompile(`(\d+) of (\d+) voters are seen`)
)

// notIn: who is to be started again does not run, or cannot be reached; and a majority is not missed
// where it is seen.
func notIn(f *facts, l *line) string {
	reason := l.Text("reason")
	if m := counted.FindStringSubmatch(reason); m != nil {
		var seen, of int
		_, _ = fmt.Sscan(m[1], &seen)
		_, _ = fmt.Sscan(m[2], &of)
		if 2*seen > of && strings.Contains(reason, "a majority must be") {
			return "a majority is seen"
		}
		if 2*seen > of {
			return "" // an election takes as long as it takes
		}
	}
	if m := toStart.FindStringSubmatch(reason); m != nil {
		for _, name := range strings.Split(m[1], " or ") {
			if !f.troubled(name, l.at) && !f.apart(l.who.name, "", l.at.Add(-f.margin()), l.at) && !f.troubled(l.who.name, l.at) {
				return name + " runs, and can be reached"
			}
		}
	}
	return afterTrouble(f, l)
}

// namedTwice: it is the gateway's last run, or another one of its name.
func namedTwice(f *facts, l *line) string {
	for _, r := range f.runs {
		if len(f.of(r.name)) > 1 && strings.Contains(fmt.Sprint(l.Record), r.name) {
			return ""
		}
	}
	return "no name is used twice"
}
