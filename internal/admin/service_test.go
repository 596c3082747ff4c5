package admin

import (
	"strings"
	"testing"
)

// TestService: an upstream's fault comes first, with its cause.
func TestService(t *testing.T) {
	const url = "http://10.0.1.1:80"
	usual := Times{Count: 900, MeanMillis: 50}
	for name, c := range map[string]struct {
		pool PoolFleet
		word string
		want []string
	}{
		"well":         {PoolFleet{Upstreams: []Upstream{{URL: url, Up: true, Unanswered: 6, QuietSeconds: 0.1, Recent: Recent{Ended: 100, Errors: 1}, Header: usual, Usual: usual}}}, "up", nil},
		"down":         {PoolFleet{Upstreams: []Upstream{{URL: url, DownAt: []string{"gw-1"}, DownSeconds: 8, Why: "connection refused"}}}, "down", []string{url + " is down, for 8.0 s: connection refused."}},
		"down at one":  {PoolFleet{Upstreams: []Upstream{{URL: url, Up: true, DownAt: []string{"gw-1"}, DownSeconds: 8}}}, "down at gw-1", []string{url + " is down at gw-1, for 8.0 s."}},
		"silent":       {PoolFleet{Upstreams: []Upstream{{URL: url, Up: true, Unanswered: 6, QuietSeconds: 70, Usual: usual}}}, "silent", []string{url + " has not answered for 70 s; 6 requests wait for an answer."}},
		"usually slow": {PoolFleet{Upstreams: []Upstream{{URL: url, Up: true, Unanswered: 6, QuietSeconds: 70, Usual: Times{900, 30_000}}}}, "up", nil},
		"5xx":          {PoolFleet{Upstreams: []Upstream{{URL: url, Up: true, Recent: Recent{Ended: 100, Errors: 40}}}}, "failing", []string{url + " answered 40 of 100 requests in 60 s with 5xx."}},
		"no answers":   {PoolFleet{Upstreams: []Upstream{{URL: url, Up: true, Recent: Recent{Ended: 100, Failed: 40}}}}, "failing", []string{url + " gave no answer to 40 of 100 requests in 60 s."}},
		"slow":         {PoolFleet{Upstreams: []Upstream{{URL: url, Up: true, Header: Times{10, 750}, Usual: usual}}}, "slow", []string{url + " takes 750 ms to answer, usually 50 ms."}},
		"several": {
			PoolFleet{Upstreams: []Upstream{{URL: url, Up: true}, {URL: "http://10.0.1.2:80", DownAt: []string{"gw-1"}, DownSeconds: 8}}},
			"up",
			[]string{"http://10.0.1.2:80 is down, for 8.0 s."},
		},
		"tickets": {PoolFleet{TicketsHolding: 6, OldestHoldSeconds: 150, Waiting: 8}, "", []string{"tickets hold all 6 slots, one for 2 min 30 s; 8 requests wait."}},
		"client":  {PoolFleet{InFlight: 6, Waiting: 94, Client: Client{"192.0.2.7", 90, 100}}, "", []string{"the client 192.0.2.7 has 90 of 100 places; others wait."}},
		"in turn": {PoolFleet{InFlight: 6, Waiting: 94, Client: Client{"192.0.2.7", 90, 100}, Shares: make([]Share, 2)}, "", nil},
		"alone":   {PoolFleet{InFlight: 6, Waiting: 83, Client: Client{"192.0.2.7", 90, 90}, Recent: Recent{Refused: 9}}, "", nil}, // refused for another cause
		"full":    {PoolFleet{InFlight: 6, Waiting: 83, Client: Client{"192.0.2.7", 90, 90}, Recent: Recent{Refused: 9, Full: 5}}, "", []string{"the client 192.0.2.7 has 90 of 90 places, and the queue was full: 5 refused in 60 s."}},
	} {
		p := Pool{Name: "p", K: 6, Fleet: c.pool}
		for i := range c.want {
			c.want[i] = "p: " + c.want[i]
		}
		if got := strings.Join(p.service(), "\n"); got != strings.Join(c.want, "\n") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if len(c.pool.Upstreams) > 0 && c.pool.Upstreams[0].Word() != c.word {
			t.Errorf("%s: %s, want %s", name, c.pool.Upstreams[0].Word(), c.word)
		}
	}
}

// TestMergeUpstreams: an upstream that has answered any gateway is not silent.
func TestMergeUpstreams(t *testing.T) {
	var all []Upstream
	for name, u := range map[string]Upstream{
		"gw-1": {URL: "u", Up: true, InFlight: 2, Unanswered: 2, QuietSeconds: 40, AnsweredSeconds: 40, Recent: Recent{Ended: 1}, Header: Times{1, 10}},
		"gw-2": {URL: "u", InFlight: 1, Unanswered: 1, QuietSeconds: 2, AnsweredSeconds: 7, DownSeconds: 3, Recent: Recent{Ended: 2, Failed: 1}, Header: Times{3, 30}},
		"gw-3": {URL: "u", Up: true},
	} {
		all = mergeUpstreams(all, name, []Upstream{u})
	}
	u := all[0]
	if len(all) != 1 || !u.Up || u.Quiet() != 7 || u.InFlight != 3 || u.Recent != (Recent{Ended: 3, Failed: 1}) || u.Header != (Times{4, 25}) || u.Word() != "failing" {
		t.Errorf("%+v", all)
	}
}
