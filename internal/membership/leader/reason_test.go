package leader

import (
	"slices"
	"strings"
	"testing"

	"github.com/kgate/kgate/kmutex"
)

// What operators read says for how long a lease was not renewed, if that is the cause, and names
// who complained: the leader if nobody else did.
func TestReasonsInWords(t *testing.T) {
	for name, tt := range map[string]struct {
		fault func(*world)
		node  kmutex.Node
		want  string
	}{
		"a process is gone": {
			func(w *world) { w.quiet[3] = true; w.seen.Unreachable[3] = start + 50*ms; w.run(200 * ms) },
			3, "its peer port does not answer, reported by a",
		},
		"a lease is over": {
			func(w *world) { w.quiet[3] = true }, 3,
			"no lease renewed in the last 3.9 s, and its lease is over, reported by a",
		},
		"a link is broken": {
			func(w *world) { w.reports[2], w.reports[4] = Report{Down: nodes{4}}, Report{Down: nodes{2}} }, 4,
			"its link to another member is down, and both renew their leases, reported by b",
		},
		"a report does not come": {
			func(w *world) { w.reports[1] = Report{Missing: nodes{3}} }, 3,
			"its report does not reach the home of a pool, reported by a",
		},
		"many links are broken": {
			func(w *world) {
				w.reports[6] = Report{Down: nodes{2, 3, 4, 5}}
				for n := kmutex.Node(2); n < 6; n++ {
					w.reports[n] = Report{Down: nodes{6}}
				}
			}, 6, "its link to another member is down, and both renew their leases, reported by b, c, d and 1 more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 6)
			w.renew()
			tt.fault(w)
			w.run(2 * terms.Wait())
			if got := w.lost[tt.node].text; got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	long := Suspicion{Reason: Apart, Reporters: slices.Repeat([]string{"gateway"}, 50)}
	if text := long.Text("a"); !strings.HasSuffix(text, "gateway, gateway, gateway and 47 more") {
		t.Error(text)
	}
}
