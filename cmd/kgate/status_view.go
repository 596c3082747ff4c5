package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kgate/kgate/internal/admin"
)

// statusView writes a status as text.
type statusView struct {
	*screen
	out strings.Builder
}

func (v *statusView) say(format string, args ...any) { fmt.Fprintf(&v.out, format, args...) }

// print writes as much as the terminal has room for. It first leaves out the lists of
// requests, and then the tables: each gateway gets one word.
func (v *statusView) print(s *admin.Status, lines map[string]admin.Line) {
	v.whole(s, lines)
	width, height := v.size()
	if !v.terminal || !v.drawn || height == 0 {
		return
	}
	fits := func() bool {
		n := 0
		for line := range strings.Lines(v.out.String()) {
			n += 1 + max(0, visibleLen(strings.TrimSuffix(line, "\n"))-1)/max(1, width) // long lines take several
		}
		return n <= height
	}
	if !fits() {
		v.out.Reset()
		v.whole(s, nil)
	}
	if !fits() {
		v.out.Reset()
		v.short(s)
	}
	v.last = v.out.String()
}

// short writes one line for each pool, and the gateways in columns: those in trouble first if
// there is no room for all.
func (v *statusView) short(s *admin.Status) {
	const column, troubles = 26, 2
	width, height := v.size()
	v.header(s, troubles, width)
	pools := s.Pools[:min(len(s.Pools), max(1, height/3))]
	rest := 2 + len(pools) // empty lines and pools
	if len(pools) < len(s.Pools) {
		rest++
	}
	perLine := max(1, width/column)
	room := perLine * max(1, height-strings.Count(v.out.String(), "\n")-rest)
	members, more := s.Cluster.Members, 0
	if len(members) > room {
		members = slices.SortedStableFunc(slices.Values(members), func(a, b admin.Member) int { return trouble(b) - trouble(a) })
		members, more = members[:room-1], len(members)-room+1
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name
	}
	for i, m := range members {
		if i%perLine == 0 {
			v.say("\n")
		}
		word := v.good(m.Word())
		if m.Bad() {
			word = v.bad(m.Word())
		}
		cell := shorten(names, column-visibleLen(word)-2)[i] + " " + word
		v.say("%s%s", cell, strings.Repeat(" ", max(1, column-visibleLen(cell))))
	}
	if more > 0 {
		v.say("and %d more", more)
	}
	v.say("\n\n")
	for i := range pools {
		p := &pools[i]
		v.say("%s\n", cut(fmt.Sprintf("pool %s: %d %s, %d waiting, the oldest for %s, spread %s", p.Name, p.Fleet.InFlight, p.Use(),
			p.Fleet.Waiting, admin.Seconds(p.Fleet.OldestSeconds), admin.Millis(p.Fleet.SpreadMillis)), width))
	}
	if more := len(s.Pools) - len(pools); more > 0 {
		v.say("and %d more pools\n", more)
	}
}

// trouble is 1 for a gateway that is not as it should be, else 0.
func trouble(m admin.Member) int {
	if m.Bad() {
		return 1
	}
	return 0
}

func (v *statusView) whole(s *admin.Status, lines map[string]admin.Line) {
	v.header(s, len(s.Troubles()), math.MaxInt)
	for i := range s.Pools {
		v.pool(&s.Pools[i], lines[s.Pools[i].Name])
	}
	v.members(s.Cluster)
	v.last = v.out.String()
}

// header writes at most most troubles, each cut to room characters, and the summary.
func (v *statusView) header(s *admin.Status, most, room int) {
	troubles := s.Troubles()
	for _, t := range troubles[:min(most, len(troubles))] {
		v.say("%s\n", v.bad(cut("! "+t, room)))
	}
	if more := len(troubles) - most; more > 0 {
		v.say("%s\n", v.bad(fmt.Sprintf("! and %d more", more)))
	}
	state := v.good("ready")
	if !s.Gateway.Ready {
		state = v.bad("not ready")
	}
	v.say("gateway %s, %s, up %s, version %s\n", v.title(s.Gateway.Name), state, admin.Uptime(s.Gateway.UptimeSeconds), s.Version)
	v.say("view %d, led by %s, %s\n", s.Cluster.View, cmp.Or(s.Cluster.Leader, "-"), s.Cluster.Agreement())
}

func (v *statusView) pool(p *admin.Pool, line admin.Line) {
	f := &p.Fleet
	v.say("\npool %s, %s binding, epoch %d\n", v.title(p.Name), p.Binding, p.Epoch)
	v.say("%s %d %s\n", v.bar(p), f.InFlight, p.Use())
	if p.Rate != nil {
		v.say("%s\n", admin.Rate(p.Rate))
	}
	oldest := ""
	if f.Waiting > 0 {
		oldest = ", the oldest for " + admin.Seconds(f.OldestSeconds)
	}
	v.say("%d waiting%s\n", f.Waiting, oldest)
	if w := f.AccessWindow; w.Count > 0 {
		v.say("mean wait %s, longest %s, spread %s, %d admitted in 60 s\n",
			admin.Millis(w.MeanMillis), admin.Millis(w.MaxMillis), admin.Millis(f.SpreadMillis), w.Count)
	} else if f.Waiting > 0 {
		v.say("%s\n", v.bad("nobody admitted in 60 s"))
	}
	if a := f.Answers(); a != "" {
		v.say("%s\n", a)
	}
	v.upstreams(f)
	v.shares(p)
	v.parts(f)
	v.line(line)
}

// part writes a table below what is there, if it has rows.
func (v *statusView) part(t table) {
	if len(t.rows) > 0 {
		v.out.WriteString(t.text(v.screen))
	}
}

func (v *statusView) upstreams(f *admin.PoolFleet) {
	t := table{head: upstreamHead, right: []int{2, 3, 4, 5}, names: []int{0}}
	for _, u := range f.Upstreams {
		t.add(upstreamCells(v.screen, u)...)
	}
	v.part(t)
}

// shares shows what the clients have that have had most, in the order fair.
func (v *statusView) shares(p *admin.Pool) {
	t := table{head: []string{"CLIENT", "SHARE", "IN USE", "WAITING", "MEAN WAIT", "OLDEST"}, right: []int{1, 2, 3, 4, 5}, names: []int{0}}
	for _, s := range p.Fleet.Shares {
		t.add(s.Client, s.Of(p.K), fmt.Sprint(s.InUse), fmt.Sprint(s.Waiting), cmp.Or(s.MeanWait(), "-"), cmp.Or(s.Oldest(), "-"))
	}
	v.part(t)
}

var upstreamHead = []string{"UPSTREAM", "STATE", "FOR", "IN FLIGHT", "ERRORS/S", "ANSWERS IN"}

// upstreamCells returns the cells below upstreamHead.
func upstreamCells(s *screen, u admin.Upstream) []string {
	word, since, header := u.Word(), "", "-"
	switch word {
	case admin.UpstreamUp:
		word = s.good(word)
	case admin.UpstreamSilent:
		word, since = s.bad(word), admin.Seconds(u.Quiet())
	default:
		word = s.bad(word)
	}
	if len(u.DownAt) > 0 {
		since = admin.Seconds(u.DownSeconds)
	}
	if u.Header.Count > 0 {
		header = admin.Millis(u.Header.MeanMillis)
	}
	return []string{u.URL, word, since, u.Busy(), fmt.Sprintf("%.3g", u.ErrorsPerSecond()), header}
}

// bar shows the slots, each as a sign as long as they fit.
func (v *statusView) bar(p *admin.Pool) string {
	const most = 40
	size := max(1, min(p.K, most))
	share := func(n int) int {
		if p.K <= size {
			return min(n, size)
		}
		return min((n*size+p.K-1)/p.K, size)
	}
	used := share(p.Fleet.InFlight)
	withheld := min(share(p.Withheld), size-used)
	unknown := min(share(p.Unknown()), size-used-withheld)
	return "[" + strings.Repeat("#", used) + v.bad(strings.Repeat("x", withheld)) + strings.Repeat("?", unknown) +
		strings.Repeat(".", size-used-withheld-unknown) + "]"
}

func (v *statusView) parts(f *admin.PoolFleet) {
	t := table{head: []string{"AT", "IN USE", "WAITING", "MEAN WAIT", "BATON"}, right: []int{1, 2, 3}, names: []int{0}}
	for _, g := range f.Gateways {
		baton, mean := "", "-"
		if g.Baton {
			baton = "here"
		}
		if g.AccessWindow.Count > 0 {
			mean = admin.Millis(g.AccessWindow.MeanMillis)
		}
		t.add(g.Name, fmt.Sprint(g.InFlight), fmt.Sprint(g.Waiting), mean, baton)
	}
	for _, name := range f.Missing {
		t.add(name, "?", "?", "?", v.bad("does not answer"))
	}
	v.part(t)
}

// How many of a pool's entries are shown.
const (
	holdersShown = 5
	waitingShown = 10
)

func (v *statusView) line(l admin.Line) {
	t := table{head: []string{"PLACE", "FOR", "AT", "WHO"}, right: []int{0, 1}, names: []int{2}}
	for _, e := range l.Holders[:min(holdersShown, len(l.Holders))] {
		t.add("in", admin.Seconds(e.Seconds), e.Gateway, e.Who())
	}
	if more := l.InFlight - holdersShown; more > 0 {
		t.add("in", "", "", v.quiet(fmt.Sprintf("and %d more", more)))
	}
	for _, e := range l.Line[:min(waitingShown, len(l.Line))] {
		t.add(fmt.Sprint(e.Position), admin.Seconds(e.Seconds), e.Gateway, e.Who())
	}
	if more := l.Waiting - waitingShown; more > 0 {
		t.add("", "", "", v.quiet(fmt.Sprintf("and %d more", more)))
	}
	v.part(t)
}

func (v *statusView) members(c admin.Cluster) {
	v.part(membersTable(v.screen, c))
}

func membersTable(s *screen, c admin.Cluster) table {
	t := table{head: []string{"GATEWAY", "STATE", "VOTES", "IF LOST", "LEASE", "RTT", "SUCCESSOR", "ADDRESS"}, right: []int{4, 5}, names: []int{0, 6}}
	for _, m := range c.Members {
		lease, rtt, successor, state, vote := "-", "-", m.Successor, s.good(m.Word()), ""
		if m.Votes {
			vote = "yes"
		}
		if m.LeaseSeconds != nil {
			lease = admin.Seconds(*m.LeaseSeconds)
		}
		switch {
		case m.Self:
			rtt = "here"
		case m.RTTMillis != nil:
			rtt = admin.Millis(*m.RTTMillis)
		}
		if successor == "" && len(m.Copies) > 0 {
			successor = m.Copies[0]
		}
		if m.Bad() {
			state = s.bad(m.Word())
		}
		t.add(m.Name, state, vote, cmp.Or(c.IfLost(m), "-"), lease, rtt, cmp.Or(successor, "-"), cmp.Or(m.Addr, "-"))
	}
	return t
}
