package kmutex

import (
	"math/bits"
	"slices"
	"strconv"
)

// TokenSet is a set of tokens, one bit each. The zero value is the empty set. The last
// word is never 0, so sets that are equal have the same length.
type TokenSet []uint64

// NewTokenSet returns the set {0, ..., k-1}.
func NewTokenSet(k int) TokenSet {
	var s TokenSet
	for q := range k {
		s.Add(Token(q))
	}
	return s
}

// Add puts q into s.
func (s *TokenSet) Add(q Token) {
	word := int(q) / 64
	for len(*s) <= word {
		*s = append(*s, 0)
	}
	(*s)[word] |= 1 << (uint(q) % 64)
}

// AddAll puts every token of t into s.
func (s *TokenSet) AddAll(t TokenSet) {
	for len(*s) < len(t) {
		*s = append(*s, 0)
	}
	for i, word := range t {
		(*s)[i] |= word
	}
	s.trim() // t may come from another program
}

// RemoveAll takes every token of t out of s.
func (s *TokenSet) RemoveAll(t TokenSet) {
	for i := range min(len(*s), len(t)) {
		(*s)[i] &^= t[i]
	}
	s.trim()
}

// KeepAll takes every token out of s that is not in t.
func (s *TokenSet) KeepAll(t TokenSet) {
	*s = (*s)[:min(len(*s), len(t))]
	for i := range *s {
		(*s)[i] &= t[i]
	}
	s.trim()
}

// Remove takes q out of s.
func (s *TokenSet) Remove(q Token) {
	if word := int(q) / 64; word < len(*s) {
		(*s)[word] &^= 1 << (uint(q) % 64)
		s.trim()
	}
}

// trim cuts off the empty words at the end.
func (s *TokenSet) trim() {
	for len(*s) > 0 && (*s)[len(*s)-1] == 0 {
		*s = (*s)[:len(*s)-1]
	}
}

// Has reports whether q is in s.
func (s TokenSet) Has(q Token) bool {
	word := int(q) / 64
	return q >= 0 && word < len(s) && s[word]&(1<<(uint(q)%64)) != 0
}

// Below reports whether every token of s is smaller than k.
func (s TokenSet) Below(k int) bool {
	_, beyond := s.atOrAfter(Token(k))
	return !beyond
}

// Len returns the number of tokens in s.
func (s TokenSet) Len() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// Next returns the first token at or after from, in cyclic order, and whether
// there is one.
func (s TokenSet) Next(from Token) (Token, bool) {
	if q, ok := s.atOrAfter(from); ok {
		return q, true
	}
	return s.atOrAfter(0)
}

func (s TokenSet) atOrAfter(from Token) (Token, bool) {
	for word := int(from) / 64; word < len(s); word++ {
		w := s[word]
		if word == int(from)/64 {
			w &= ^uint64(0) << (uint(from) % 64)
		}
		if w != 0 {
			return Token(word*64 + bits.TrailingZeros64(w)), true
		}
	}
	return 0, false
}

// Tokens returns the tokens in ascending order.
func (s TokenSet) Tokens() []Token {
	ts := make([]Token, 0, s.Len())
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			ts = append(ts, Token(i*64+bits.TrailingZeros64(word)))
		}
	}
	return ts
}

// Clone returns a copy that shares nothing with s.
func (s TokenSet) Clone() TokenSet { return slices.Clone(s) }

// String formats s as {0,2,5}.
func (s TokenSet) String() string {
	b := []byte{'{'}
	for i, q := range s.Tokens() {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(q), 10)
	}
	return string(append(b, '}'))
}
