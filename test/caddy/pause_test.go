package caddy

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
	"github.com/kgate/kgate/test/cluster"
)

// A Caddy that is stopped holds up nobody for longer than its lease, and comes back by
// itself when it goes on.
func TestPause(t *testing.T) {
	const (
		k     = 3
		lease = 3 * time.Second
		// The contract's bound if it leads and has all tokens: an election, then the lease.
		again = lease/3 + time.Second + lease*11/10 + time.Second
		stop  = again + 2*time.Second
	)
	judge, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) }))
	all := fleet(t, 3, "pool {\n k 3\n }", upstream)
	load := cluster.StartLoad(t, gatewaysOf(all), cluster.LoadOptions{Clients: 6})
	time.Sleep(2 * time.Second)
	if err := all[0].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	time.Sleep(stop)
	if err := all[0].Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	woke := time.Now()
	if err := cluster.Await(t.Context(), func() error { return all[0].ask(t.Context()) }); err != nil {
		t.Error(err)
	}
	t.Logf("the stopped one serves again %v after it goes on", time.Since(woke).Round(time.Millisecond))
	load.Stop()
	last, gap, late := stopped, time.Duration(0), 0
	for _, a := range load.Since(stopped) {
		switch {
		case a.Gateway == all[0].name || a.Done.After(woke):
			continue
		case a.Result != cluster.OK:
			t.Errorf("%s: %s %v after the stop", a.Gateway, a.Result, a.Done.Sub(stopped))
		case a.Done.Sub(stopped) > again:
			late++
		}
		last, gap = a.Done, max(gap, a.Done.Sub(last))
	}
	_, most, _ := judge.Counts()
	t.Logf("stopped for %v: the others stood for %v, then %d answers; at most %d at once", stop, gap.Round(time.Millisecond), late, most)
	if most != k || late < 20 || gap > timing.Slack()*again {
		t.Errorf("at most %d at once, k is %d; the others stood for %v", most, k, gap)
	}
}
