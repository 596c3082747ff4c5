package coordinator

import (
	"github.com/kgate/kgate/kmutex"
)

// This file holds how late binding counts tokens class by class.

// kinds returns how many classes there are; one if all tokens are alike.
func (l *Late) kinds() int { return max(1, len(l.classes)) }

// freeOf returns the tokens of set that are in class i.
func (l *Late) freeOf(set kmutex.TokenSet, i int) kmutex.TokenSet {
	if l.classes == nil {
		return set
	}
	set = set.Clone()
	set.KeepAll(l.classes[i])
	return set
}

// spare returns the coordinator's free tokens that may be granted: all but the highest of each
// class, as many as the class's excess.
func (l *Late) spare() kmutex.TokenSet {
	if l.excess == nil && l.classes == nil {
		return l.free
	}
	var spare kmutex.TokenSet
	for i := range l.kinds() {
		of := l.freeOf(l.free, i).Clone()
		if l.excess != nil {
			of = l.take(&of, max(0, of.Len()-int(l.excess[i])))
		}
		spare.AddAll(of)
	}
	return spare
}

// short returns how many tokens of the excess the coordinator has not collected yet.
func (l *Late) short() int {
	short := 0
	for i, excess := range l.excess {
		short += max(0, int(excess)-l.freeOf(l.free, i).Len())
	}
	return short
}

// total returns the sum of the classes' excess.
func total(excess []uint32) int {
	n := 0
	for _, e := range excess {
		n += int(e)
	}
	return n
}

// without returns the tokens of set that are not in other. The result may share memory with set.
func without(set, other kmutex.TokenSet) kmutex.TokenSet {
	if len(other) == 0 {
		return set
	}
	set = set.Clone()
	set.RemoveAll(other)
	return set
}

// take moves n tokens, or all if there are fewer, out of a set.
func (*Late) take(from *kmutex.TokenSet, n int) kmutex.TokenSet {
	var out kmutex.TokenSet
	for range min(n, from.Len()) {
		q, _ := from.Next(0)
		from.Remove(q)
		out.Add(q)
	}
	return out
}
