package cluster

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
)

// Judge counts, at the upstream, what is in flight: the requests whose handler
// runs and whose connection is open. An upstream learns late that a gateway has
// broken a request off, and may meet the next one first; so before the Judge
// counts more requests than ever before it asks the system which of their
// connections have been closed by the other end.
type Judge struct {
	mu       sync.Mutex
	visits   map[*visit]struct{}
	most     int
	total    int
	keeps    bool // arrivals
	arrivals []Arrival
}

// visit is a request that is in flight.
type visit struct {
	conn   net.Conn
	from   string
	number int       // of the arrival, from 1; 0: they are not kept
	open   time.Time // when its connection was last seen to be
}

// Arrival is a request that has come to a Judge.
type Arrival struct {
	At time.Time
	// From is the gateway through which a Load has sent it.
	From string
	// InFlight counts the requests that were then in flight, this one included.
	InFlight int
	// Use of the slot; Asked is zero if no Load has sent it.
	Use Use
}

type connKey struct{}

// NewJudge serves h as an upstream until the test ends, and counts.
func NewJudge(tb testing.TB, h http.Handler) (j *Judge, s *http.Server, url string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	j, s = NewJudgeAt(tb, l, h)
	return j, s, "http://" + l.Addr().String()
}

// NewJudgeAt does the same on a listener of the caller's.
func NewJudgeAt(tb testing.TB, l net.Listener, h http.Handler) (*Judge, *http.Server) {
	tb.Helper()
	j := &Judge{visits: make(map[*visit]struct{})}
	s := &http.Server{
		Handler: j.around(h),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	serveOn(tb, s, l)
	return j, s
}

// around counts requests. A request leaves before its last byte does: an answer
// whose length is not announced, or that fits into the server's buffer, ends
// when the handler has returned.
func (j *Judge) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == healthPath { // checks come beside the k requests
			return
		}
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		v := &visit{conn: conn, from: r.Header.Get(fromHeader)}
		j.enter(v, Use{From: v.from, Fence: r.Header.Get(FenceHeader), Asked: sentAt(r)})
		defer j.leave(v)
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, leaver{j, v})))
	})
}

type visitKey struct{}

type leaver struct {
	judge *Judge
	visit *visit
}

// leaveEarly is for handlers that themselves close the connection of an upgrade:
// it counts the request as ended.
func leaveEarly(r *http.Request) {
	if l, ok := r.Context().Value(visitKey{}).(leaver); ok {
		l.judge.leave(l.visit)
	}
}

func (j *Judge) enter(v *visit, u Use) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.total++
	u.Began = time.Now() // before it is seen who else is in flight
	v.open = u.Began
	j.visits[v] = struct{}{}
	if j.keeps { // before it is seen who has left: this one may have
		j.arrivals = append(j.arrivals, Arrival{At: u.Began, From: v.from, Use: u})
		v.number = len(j.arrivals)
	}
	if len(j.visits) > j.most || j.keeps {
		j.forgetClosed()
	}
	j.most = max(j.most, len(j.visits))
	if j.keeps {
		j.arrivals[v.number-1].InFlight = len(j.visits)
	}
}

func (j *Judge) forgetClosed() { j.look(slices.Collect(maps.Keys(j.visits))) }

// look forgets those requests whose connection is closed, and notes when the others were open.
func (j *Judge) look(at []*visit) {
	conns := make([]net.Conn, len(at))
	for i, v := range at {
		conns[i] = v.conn
	}
	now := time.Now()
	for i, closed := range closedByPeer(conns...) {
		if closed {
			j.forget(at[i])
		} else {
			at[i].open = now
		}
	}
}

// forget ends a request when it was last seen.
func (j *Judge) forget(v *visit) {
	if _, in := j.visits[v]; !in {
		return
	}
	delete(j.visits, v)
	if v.number > 0 {
		j.arrivals[v.number-1].Use.Ended = v.open
	}
}

func (j *Judge) leave(v *visit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.look([]*visit{v})
	j.forget(v)
}

// Counts returns how many requests are in flight, the most that ever were, and
// how many came in all.
func (j *Judge) Counts() (inFlight, most, total int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.visits), j.most, j.total
}

// InFlight returns how many requests are in flight that have come through a
// gateway.
func (j *Judge) InFlight(from string) int { return len(j.conns(from)) }

// conns returns their connections.
func (j *Judge) conns(from string) (out []net.Conn) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forgetClosed()
	for v := range j.visits {
		if v.from == from {
			out = append(out, v.conn)
		}
	}
	return out
}

// Keep has the Judge keep all arrivals from now on.
func (j *Judge) Keep() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.keeps = true
}

// Since returns the arrivals since a time, in their order.
func (j *Judge) Since(t time.Time) []Arrival {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := sort.Search(len(j.arrivals), func(i int) bool { return !j.arrivals[i].At.Before(t) })
	return slices.Clone(j.arrivals[i:])
}

// CheckHistory checks all that was kept against a semaphore of k, as [CheckHistory] does.
func (j *Judge) CheckHistory(tb testing.TB, pool string, k int, changes ...Change) {
	tb.Helper()
	var uses []Use
	for _, a := range j.Since(time.Time{}) {
		uses = append(uses, a.Use)
	}
	CheckHistory(tb, pool, k, uses, changes...)
}

// Gap returns the longest time between two arrivals, and between them and both
// ends of the time from since to until.
func Gap(arrivals []Arrival, since, until time.Time) (longest time.Duration) {
	last := since
	for _, a := range arrivals {
		if a.At.Before(since) || a.At.After(until) {
			continue
		}
		longest = max(longest, a.At.Sub(last))
		last = a.At
	}
	return max(longest, until.Sub(last))
}

// AwaitInFlight waits until a request that came since then has made it at least n in flight,
// and returns how long after that time it came. The test ends if that is more than
// [timing.Slack] times the bound.
func (j *Judge) AwaitInFlight(tb testing.TB, what string, since time.Time, n int, bound time.Duration) (took time.Duration) {
	tb.Helper()
	ctx, cancel := context.WithDeadline(tb.Context(), since.Add(timing.Slack()*bound))
	defer cancel()
	if err := Await(ctx, func() error {
		all := j.Since(since)
		i := slices.IndexFunc(all, func(a Arrival) bool { return a.InFlight >= n })
		if i < 0 {
			return fmt.Errorf("%s: %d requests, and never %d in flight, within %v", what, len(all), n, timing.Slack()*bound)
		}
		took = all[i].At.Sub(since)
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
	tb.Logf("%s: %v until %d were in flight, bound %v", what, took.Round(time.Millisecond), n, bound)
	return took
}

// LogPools logs what each gateway says of its pools.
func (c *Cluster) LogPools(tb testing.TB) {
	tb.Helper()
	for _, g := range c.Gateways {
		s, err := g.Status(tb.Context())
		if err != nil {
			tb.Logf("%s: %v", g.Name, err)
			continue
		}
		for i := range s.Pools {
			p := &s.Pools[i]
			tb.Logf("%s: pool %s, epoch %d, in flight %d, waiting %d, baton here %t, free tokens here %d, withheld %d",
				g.Name, p.Name, p.Epoch, p.InFlight, p.Waiting, p.BatonHere, p.FreeTokensHere, p.Withheld)
		}
	}
}
