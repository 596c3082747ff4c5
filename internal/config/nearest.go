package config

// Nearest returns the candidate with the least edit distance to word, or ""
// if none is near enough to be what was meant.
func Nearest(word string, candidates []string) string {
	const longest = 64 // anything longer is not a misspelt key, and the time grows with the square
	if len(word) > longest {
		return ""
	}
	best, bestDistance := "", len(word)/2+1
	for _, c := range candidates {
		if len(c) > longest {
			continue
		}
		if d := editDistance(word, c); d < bestDistance && d < max(len(c), 2) {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment).
func editDistance(a, b string) int {
	var beforeLast []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], beforeLast[j-2]+1)
			}
		}
		beforeLast, last = last, row
	}
	return last[len(b)]
}

// didYouMean is the hint about an unknown word: the nearest known one, or all.
func didYouMean(word string, known []string, what string) string {
	if near := Nearest(word, known); near != "" {
		return "did you mean " + near + "?"
	}
	return what + ": " + list(known)
}

// list names the first words.
func list(words []string) string {
	const most = 16
	s := ""
	for i, w := range words {
		switch {
		case i == most:
			return s + ", ..."
		case i > 0:
			s += ", "
		}
		s += w
	}
	return s
}
