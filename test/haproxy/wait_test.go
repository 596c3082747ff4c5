package haproxy

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// The wait that HAProxy may log is no longer than what its client sees. Five requests
// wait for one slot, for 0 to 1.2 s: a clock of whole seconds is ahead for some of them.
func TestWaitForLogs(t *testing.T) {
	const hold = 300 * time.Millisecond
	judge, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush() // the client's wait ends here
		time.Sleep(hold)
	}))
	c := cluster.Start(t, cluster.Options{Gateways: 1, K: 1, Upstream: upstream, Name: "wait"})
	h := fleet(t, c, options{upstream: upstream, ttl: 10, wait: 60})[0]
	client := newClient(t)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		longest time.Duration
	)
	for range 5 {
		wg.Go(func() {
			began := time.Now()
			res, err := client.Get(h.url)
			if err != nil {
				t.Error(err)
				return
			}
			seen := time.Since(began)
			defer res.Body.Close()
			ms, err := strconv.Atoi(res.Header.Get(waitHeader))
			logged := time.Duration(ms) * time.Millisecond
			if err != nil || logged > seen+100*time.Millisecond { // HAProxy reads the clock once a turn
				t.Errorf("HAProxy says %v, %v; the client waited %v", logged, err, seen)
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil { // to leave would end the hold
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, logged)
		})
	}
	wg.Wait()
	if _, most, total := judge.Counts(); most != 1 || total != 5 {
		t.Errorf("%d requests, at most %d at the upstream at once, k is 1", total, most)
	}
	if longest < 3*hold { // the last of them may begin late, behind the first one's hold
		t.Errorf("the longest of five waits for holds of %v is %v", hold, longest)
	}
}
