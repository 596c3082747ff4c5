package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What a semaphore of two allows, and what it does not. Token 1 counts 1, 65537, 131073, ...;
// token 2 counts 2, 65538, ...
func TestCheckHistory(t *testing.T) {
	zero := time.Now()
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	// use is asked for, begins and ends then; it never ends if that is 0.
	use := func(epoch, serial, asked, began, ended int) Use {
		u := Use{Fence: fmt.Sprintf("pool/7/%d/%d", epoch, serial), Asked: at(asked), Began: at(began)}
		if ended > 0 {
			u.Ended = at(ended)
		}
		return u
	}
	for _, tt := range []struct {
		name    string
		uses    []Use
		changes []Change
		wrong   string // part of the error
	}{
		{"one after the other", []Use{use(1, 1, 0, 10, 20), use(1, 65537, 0, 30, 40), use(1, 2, 0, 30, 40), use(1, 65538, 5, 50, 0)}, nil, ""},
		{"a number left out", []Use{use(1, 1, 0, 10, 20), use(1, 131073, 0, 30, 40)}, nil, ""},
		{"granted in another order than they came", []Use{use(2, 2, 0, 10, 40), use(1, 1, 0, 11, 40)}, nil, ""},
		{"one slot too many", []Use{use(1, 1, 0, 10, 40), use(1, 2, 0, 11, 40), use(1, 3, 0, 12, 40)}, nil, "use 3, pool/7/1/3"},
		{"one that never ends", []Use{use(1, 1, 0, 10, 0), use(1, 2, 0, 11, 20), use(1, 3, 0, 30, 40), use(1, 65539, 0, 35, 40)}, nil, "use 4, pool/7/1/65539"},
		{"a token twice at once", []Use{use(1, 1, 0, 10, 40), use(1, 65537, 0, 20, 30)}, nil, "use 2, pool/7/1/65537"},
		{"a fence twice", []Use{use(1, 1, 0, 10, 20), use(1, 1, 25, 30, 40)}, nil, "use 2, pool/7/1/1"},
		{"a smaller fence", []Use{use(1, 65537, 0, 10, 20), use(1, 1, 25, 30, 40)}, nil, "use 2, pool/7/1/1"},
		{"an older epoch", []Use{use(2, 1, 0, 10, 20), use(1, 1, 25, 30, 40)}, nil, "use 2, pool/7/1/1"},
		{"an older epoch of another token", []Use{use(2, 2, 0, 10, 20), use(1, 1, 25, 30, 40)}, nil, ""},
		{"two epochs, one slot too many", []Use{use(2, 2, 0, 10, 40), use(1, 1, 0, 11, 40), use(2, 3, 0, 12, 40)}, nil, "use 3, pool/7/2/3"},
		{"older gateways", []Use{use(2, 2, 0, 10, 20), {Fence: "pool/6/3/1", Asked: at(15), Began: at(30)}}, nil, "use 2, pool/6/3/1"},
		{"a larger k", []Use{use(1, 1, 0, 10, 40), use(1, 2, 0, 11, 40), use(1, 3, 0, 20, 40)}, []Change{{3, at(15), at(18)}}, ""},
		{"before it was asked for", []Use{use(1, 1, 0, 10, 40), use(1, 2, 0, 11, 40), use(1, 3, 0, 12, 40)}, []Change{{3, at(15), at(18)}}, "use 3, pool/7/1/3"},
		{"a smaller k", []Use{use(1, 1, 0, 10, 40), use(1, 2, 0, 11, 30), use(1, 65537, 20, 50, 60)}, []Change{{1, at(15), at(35)}}, ""},
		{"later than it is exact", []Use{use(1, 1, 0, 10, 80), use(1, 2, 0, 11, 30), use(1, 65538, 36, 50, 60)}, []Change{{1, at(15), at(35)}}, "use 3, pool/7/1/65538"},
		{"gone before it came, and the next use of its token", []Use{use(1, 1, 0, 10, 60), use(1, 65538, 5, 20, 50), use(1, 2, 0, 30, 30)}, nil, ""},
		{"gone before it came, one slot too many", []Use{use(1, 1, 0, 10, 40), use(1, 2, 0, 11, 40), use(1, 3, 25, 30, 30)}, nil, "use 3, pool/7/1/3"},
		{"no fence", []Use{{Began: zero}}, nil, "Kgate-Fence"},
		{"no number", []Use{{Fence: "pool/7/1/x"}}, nil, "Kgate-Fence"},
		{"serial 0", []Use{use(1, 0, 0, 1, 2)}, nil, "has no serial"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := checkHistory(2, tt.uses, tt.changes)
			if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Errorf("%v, want %q", err, tt.wrong)
			}
		})
	}
}
