package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// The words that the page, the text of the line and the command kgate status share.

// Unknown counts the slots that may be in use at gateways which do not answer.
func (p Pool) Unknown() int {
	if len(p.Fleet.Missing) == 0 {
		return 0
	}
	return max(0, p.K-p.Fleet.InFlight-p.Fleet.FreeTokens-p.Withheld)
}

// Use says how many slots are in use.
func (p Pool) Use() string {
	text := fmt.Sprintf("of %d slots in use", p.K)
	if p.Withheld > 0 {
		text += fmt.Sprintf(", %d withheld", p.Withheld)
	}
	if n := p.Unknown(); n > 0 {
		text += fmt.Sprintf(", %d unknown", n)
	}
	return text
}

// Troubles returns all faults, each in a sentence: first the faults that clients notice, then the
// gateways'.
func (s Status) Troubles() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, p := range s.Pools {
		out = append(out, p.service()...)
	}
	if !s.Gateway.Ready {
		say("This gateway admits nothing: %s.", cmp.Or(s.Gateway.Reason, "it is not ready"))
	}
	if s.Cluster.View > 0 && s.Cluster.Leader == "" {
		say("No gateway leads: is a majority of them up, and can they reach each other?")
	}
	switch c := s.Cluster; {
	case c.Voters > 0 && c.LossesTolerated < 0:
		say("No majority of the %d voters can be reached from here: nothing can be agreed on, and leases end.", c.Voters)
	case c.Voters > 2 && c.LossesTolerated == 0:
		say("One more loss among the %d voters stops all: %s.", c.Voters, c.missing())
	}
	for _, m := range s.Cluster.Members {
		switch {
		case m.Self:
		case m.Name == s.Gateway.Name && m.Status == StatusSuspended:
			say("This gateway was lost%s. The slots that it had come back when that lease has run out.", m.because())
		case m.Name == s.Gateway.Name: // has been said
		case m.Status == StatusSuspended:
			say("%s is suspended%s. Its slots come back when its lease has run out.", m.Name, m.because())
		case m.Status == StatusLost:
			say("%s is lost%s. It joins by itself when it runs and reaches the others.", m.Name, m.because())
		case !m.LinkUp:
			say("%s cannot be reached from here.", m.Name)
		case !m.Answers:
			say("%s does not answer; its part is missing below.", m.Name)
		case !m.Ready:
			say("%s admits nothing: %s.", m.Name, cmp.Or(m.Reason, "it is not ready"))
		}
	}
	out = append(out, s.fileTroubles()...)
	for _, p := range s.Pools {
		if p.Withheld > 0 {
			say("%s: %d of %d slots withheld: a lost gateway may still use them.", p.Name, p.Withheld, p.K)
		}
	}
	return out
}

// missing says which voters are lost or out of reach.
func (c Cluster) missing() string {
	var names []string
	for _, m := range c.Members {
		if m.Votes && !m.Self && (m.Status != StatusAlive || !m.LinkUp) {
			names = append(names, m.Name)
		}
	}
	switch len(names) {
	case 0:
		return "too many cannot be reached"
	case 1:
		return names[0] + " is missing"
	default:
		return strings.Join(names, ", ") + " are missing"
	}
}

// fileTroubles returns the faults of gateways' own files, with the gateways' names.
func (s Status) fileTroubles() []string {
	var texts []string
	who := make(map[string][]string)
	say := func(name string, troubles []string) {
		for _, t := range troubles {
			if who[t] == nil {
				texts = append(texts, t)
			}
			if !slices.Contains(who[t], name) {
				who[t] = append(who[t], name)
			}
		}
	}
	say(s.Gateway.Name, s.Gateway.Troubles)
	for _, m := range s.Cluster.Members {
		say(m.Name, m.Troubles)
	}
	for i, t := range texts {
		texts[i] = strings.Join(who[t], ", ") + ": " + t + "."
	}
	return texts
}

// because gives the reason of a loss, if it is known.
func (m Member) because() string {
	if m.LostReason == "" {
		return ""
	}
	return ": " + m.LostReason
}

// Agreement says how many gateways vote, and how many of them may be lost.
func (c Cluster) Agreement() string {
	switch {
	case c.View == 0:
		return "not in a cluster"
	case c.LossesTolerated < 0:
		return fmt.Sprintf("%d voters, too few of them reached", c.Voters)
	case c.Voters == 1:
		return "1 voter"
	case c.LossesTolerated == 1:
		return fmt.Sprintf("%d voters, 1 more may be lost", c.Voters)
	default:
		return fmt.Sprintf("%d voters, %d more may be lost", c.Voters, c.LossesTolerated)
	}
}

// IfLost says what the other members do if m is lost; empty if m is lost already, or the members
// cannot agree. A gateway that is stopped in order hands over first.
func (c Cluster) IfLost(m Member) string {
	switch {
	case m.Status != StatusAlive || !m.LinkUp || !m.Answers && !m.Self || c.LossesTolerated < 0:
		return ""
	case m.Votes && c.LossesTolerated == 0:
		return "all stop"
	default:
		return "go on"
	}
}

// Bad reports whether m is suspended, lost, unreachable, silent or not ready.
func (m Member) Bad() bool {
	return m.Status != StatusAlive || !m.LinkUp || !m.Answers || !m.Ready
}

// Word describes a member's state in one word.
func (m Member) Word() string {
	switch {
	case m.Status != StatusAlive:
		return m.Status
	case !m.LinkUp:
		return "unreachable"
	case !m.Answers:
		return "silent"
	case !m.Ready:
		return "not ready"
	case m.Witness:
		return "witness"
	default:
		return "ready"
	}
}

// Who describes an entry. Text that a client has chosen is made harmless to a terminal.
func (e Entry) Who() string {
	who := "a ticket " + e.Note
	if !e.Ticket {
		who = cmp.Or(strings.TrimSpace(e.Client+" "+e.Method+" "+e.Path+" "+e.Note), "a request")
	}
	return strings.Join(strings.Fields(strings.Map(visible, who)), " ")
}

func visible(r rune) rune {
	if !unicode.IsPrint(r) {
		return unicode.ReplacementChar
	}
	return r
}
