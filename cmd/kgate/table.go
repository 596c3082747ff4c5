package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// table has columns as wide as their cells. On a terminal names are shortened if there is
// too little room, and the last column is cut at the edge.
type table struct {
	head  []string
	right []int // columns that are numbers
	names []int // columns that are names of gateways
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// text returns the table as s shows it, with an empty line before it.
func (t *table) text(s *screen) string {
	room, _ := s.size()
	if s.terminal {
		t.shrink(room)
	}
	width := t.widths()
	out := "\n"
	for n, row := range append([][]string{t.head}, t.rows...) {
		var b strings.Builder
		at := 0
		for i, cell := range row {
			if i == len(row)-1 {
				b.WriteString(cut(cell, room-at))
				break
			}
			pad := strings.Repeat(" ", width[i]-visibleLen(cell))
			if slices.Contains(t.right, i) {
				cell = pad + cell
			} else {
				cell += pad
			}
			b.WriteString(cell + "  ")
			at += width[i] + 2
		}
		text := strings.TrimRight(b.String(), " ")
		if n == 0 {
			text = s.quiet(text)
		}
		out += text + "\n"
	}
	return out
}

// widths returns how wide each column needs to be.
func (t *table) widths() []int {
	width := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], visibleLen(cell))
		}
	}
	return width
}

// shrink shortens names until the last column begins on the screen.
func (t *table) shrink(room int) {
	const least = 12
	width := t.widths()
	total := len(t.head[len(t.head)-1])
	for _, w := range width[:len(width)-1] {
		total += w + 2
	}
	for ; total > room; total-- {
		widest := slices.MaxFunc(t.names, func(a, b int) int { return width[a] - width[b] })
		if width[widest] <= least {
			break
		}
		width[widest]--
	}
	for _, i := range t.names {
		names := make([]string, len(t.rows))
		for n, row := range t.rows {
			names[n] = row[i]
		}
		for n, name := range shorten(names, width[i]) {
			t.rows[n][i] = name
		}
	}
}

// shorten shortens names to room characters. It leaves out first what all names have in
// common: names of gateways often begin alike, or end in the same domain.
func shorten(names []string, room int) []string {
	begin, end := common(names)
	out := slices.Clone(names)
	for i, name := range names {
		if len(name) <= room {
			continue
		}
		if begin+end < len(name) {
			head, own, rest := name[:begin], name[begin:len(name)-end], ""
			if end > 0 {
				rest = "…"
			}
			if most := max(0, room-len(own)-2); len(head) > most {
				head = head[:most] + "…"
			}
			name = head + own + rest
		}
		out[i] = cut(name, room)
	}
	return out
}

// common returns the lengths of the prefix and suffix that all names share, up to a
// separator of words.
func common(names []string) (begin, end int) {
	const separators = "-."
	if len(names) == 0 {
		return 0, 0
	}
	before, after := names[0], names[0]
	for _, name := range names {
		for !strings.HasPrefix(name, before) {
			before = before[:len(before)-1]
		}
		for !strings.HasSuffix(name, after) {
			after = after[1:]
		}
	}
	begin = 1 + strings.LastIndexAny(before, separators)
	if first := strings.IndexAny(after, separators); first >= 0 {
		end = len(after) - first
	}
	return begin, end
}

// visibleLen counts the characters of a cell without control sequences.
func visibleLen(cell string) int {
	n := 0
	for cell != "" {
		if rest, ok := strings.CutPrefix(cell, "\x1b["); ok {
			_, cell, _ = strings.Cut(rest, "m")
			continue
		}
		_, size := utf8.DecodeRuneInString(cell)
		cell = cell[size:]
		n++
	}
	return n
}

// cut shortens a cell to room characters. A cell with colours is short already.
func cut(cell string, room int) string {
	if strings.Contains(cell, "\x1b") || utf8.RuneCountInString(cell) <= room {
		return cell
	}
	r := []rune(cell)
	return string(r[:max(0, room-1)]) + "…"
}
