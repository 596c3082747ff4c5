package gateway

import (
	"encoding/binary"

	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// A sampled request's trace links to that of the request which had its token
// before, also when that one was at another gateway: a token takes the span of
// its last holder along, in the tag of the message that it or the baton goes
// with. Spans are only kept of holders that are sampled, so that all others cost
// a look into an empty map. A link that is lost, in a new epoch for one, is
// missed by nobody.

// spanSize is the size of a span's name: the ids of its trace and of itself.
const spanSize = 16 + 8

// spanLinks has, for tokens that are here, the spans of their last holders.
type spanLinks map[kmutex.Token]string

// leave notes that s lets its token go.
func (t spanLinks) leave(s *claim) {
	if len(s.span) == spanSize && s.grant.Token != kmutex.NoToken {
		t[s.grant.Token] = s.span
	}
}

// take returns the span that q has come from, and forgets it.
func (t spanLinks) take(q kmutex.Token) string {
	span, ok := t[q]
	if ok {
		delete(t, q)
	}
	return span
}

// depart moves the spans of the tokens that m carries into its tag.
func (t spanLinks) depart(m *kmutex.Message) {
	if len(t) == 0 {
		return
	}
	add := func(q kmutex.Token) {
		span := t.take(q)
		if span != "" && len(m.Tag)+binary.MaxVarintLen64+spanSize <= transport.MaxTag {
			m.Tag = append(binary.AppendUvarint(m.Tag, uint64(q)), span...)
		}
	}
	switch m.Kind {
	case kmutex.KindToken:
		add(m.Token)
	case kmutex.KindBaton, kmutex.KindTokens, kmutex.KindOffer:
		for q := range t {
			if m.Free.Has(q) {
				add(q)
			}
		}
	default: // carries no token
	}
}

// arrived takes in the tag of a message with tokens. What is not in order counts as no tag.
func (t spanLinks) arrived(m *kmutex.Message) {
	for rest := m.Tag; len(rest) > 0; {
		q, n := binary.Uvarint(rest)
		if n <= 0 || q >= kmutex.MaxK || len(rest) < n+spanSize {
			return
		}
		t[kmutex.Token(q)] = string(rest[n : n+spanSize])
		rest = rest[n+spanSize:]
	}
}
