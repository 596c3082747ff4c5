package kmutex

import "fmt"

// EpochChange describes an epoch that is to be planned, as the agreed view has it.
type EpochChange struct {
	Epoch uint64
	// K is the number of tokens. Classes have it by class; nil: all tokens are alike.
	K       int
	Classes []Class
	Home    Node
	// Owed means that a lost node may still run requests.
	Owed bool
	// Claimed tokens may be in use by users whom only lost nodes knew.
	Claimed TokenSet
	// Spread places the free tokens evenly at all nodes if no request waits, so that a lost
	// node cannot take most of them along.
	Spread bool
}

func (f *EpochChange) check() error {
	if f.K < 1 || f.K > MaxK {
		return fmt.Errorf("%w: k=%d", ErrInstall, f.K)
	}
	var all TokenSet
	k := 0
	for i, c := range f.Classes {
		both := all.Clone()
		both.KeepAll(c.Tokens)
		if c.K < 0 || c.Tokens.Len() < c.K || !c.Tokens.Below(MaxK) || len(both) > 0 {
			return fmt.Errorf("%w: class %d has k=%d and the tokens %v", ErrInstall, i, c.K, c.Tokens)
		}
		all.AddAll(c.Tokens)
		k += c.K
	}
	if f.Classes != nil && k != f.K {
		return fmt.Errorf("%w: k=%d, and that of all classes is %d", ErrInstall, f.K, k)
	}
	return nil
}

// sets returns the tokens of each class.
func (f *EpochChange) sets() []TokenSet {
	var sets []TokenSet
	for _, c := range f.Classes {
		sets = append(sets, c.Tokens.Clone())
	}
	return sets
}

// first returns the tokens that a pool begins with.
func (f *EpochChange) first() TokenSet {
	if f.Classes == nil {
		return NewTokenSet(f.K)
	}
	var all TokenSet
	for _, c := range f.Classes {
		for _, q := range c.Tokens.Tokens()[:c.K] {
			all.Add(q)
		}
	}
	return all
}

// known returns the tokens that can exist if no epoch's k was larger than k; with classes, all
// their tokens, since a class keeps a number for as long as a node may hold it.
func (f *EpochChange) known(k int) TokenSet {
	if f.Classes == nil {
		return NewTokenSet(k)
	}
	var all TokenSet
	for _, c := range f.Classes {
		all.AddAll(c.Tokens)
	}
	return all
}
