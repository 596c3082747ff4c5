package fuzz

import (
	"fmt"
	"strconv"
	"strings"
)

// ranges writes ascending numbers as 0-3,7; none as "none".
func ranges(ns []int) string {
	if len(ns) == 0 {
		return "none"
	}
	var parts []string
	for i := 0; i < len(ns); {
		j := i
		for j+1 < len(ns) && ns[j+1] == ns[j]+1 {
			j++
		}
		part := strconv.Itoa(ns[i])
		if j > i {
			part += "-" + strconv.Itoa(ns[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// maxOps bounds the operations that ParseRanges takes.
const maxOps = 1 << 20

// ParseRanges reads what ranges has written.
func ParseRanges(text string) ([]int, error) {
	ns := []int{}
	if text == "none" {
		return ns, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err := strconv.Atoi(low)
		if err != nil {
			return nil, fmt.Errorf("fuzz: %q is no list of operations like 0-3,7", text)
		}
		to, err := strconv.Atoi(high)
		if err != nil || to < from || from < 0 || to > maxOps {
			return nil, fmt.Errorf("fuzz: %q is no list of operations like 0-3,7", text)
		}
		for n := from; n <= to; n++ {
			ns = append(ns, n)
		}
	}
	return ns, nil
}
