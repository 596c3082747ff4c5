package lookahead

// ledger is what home knows when it writes the line down.
type ledger struct {
	links map[place]entry // who stands behind a place; only those after tail
	tail  place           // the last place of the line that home knows without a gap
	line  []entry         // the places up to tail that lack tokens
	stock int             // free tokens
}

// link tells home who stands behind a place.
type link struct {
	after place
	next  entry
}

// tokens are free. Baton numbers the one that they are for; 0: they go to home.
type tokens struct {
	count, hops int
	baton       uint64
}

// write moves what the links allow into the line, and hands out tokens.
func (l *line) write() {
	w := &l.ledger
	for next, ok := w.links[w.tail]; ok; next, ok = w.links[w.tail] {
		delete(w.links, w.tail)
		w.line = append(w.line, next)
		w.tail = next.place
	}
	for w.stock > 0 && len(w.line) > 0 {
		first := &w.line[0]
		at, n := first.place, min(w.stock, first.count)
		w.stock -= n
		if first.count -= n; first.count == 0 {
			w.line = w.line[1:]
		}
		l.send(home, at.node, "grant", &grant{at.number, n})
	}
}
