package cluster

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Judge counts, at the upstream, what is in flight: the requests whose handler
// runs and whose connection is open. An upstream learns late that a gateway has
// broken a request off, and may meet the next one first; so before the Judge
// counts more requests than ever before it asks the system which of their
// connections have been closed by the other end.
type Judge struct {
	mu     sync.Mutex
	visits map[*visit]struct{}
	most   int
	total  int
	opened func() // called at each request, under the lock
}

// visit is a request that is in flight.
type visit struct{ conn net.Conn }

type connKey struct{}

// NewJudge serves h as an upstream until the test ends, and counts.
func NewJudge(tb testing.TB, h http.Handler) (j *Judge, s *http.Server, url string) {
	tb.Helper()
	j = &Judge{visits: make(map[*visit]struct{})}
	s, url = serve(tb, &http.Server{
		Handler: j.around(h),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	})
	return j, s, url
}

// around counts requests. A request leaves before its last byte does: an answer
// whose length is not announced, or that fits into the server's buffer, ends
// when the handler has returned.
func (j *Judge) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		v := &visit{conn: conn}
		j.enter(v)
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

func (j *Judge) enter(v *visit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.total++
	j.visits[v] = struct{}{}
	if j.opened != nil {
		j.opened()
	}
	if len(j.visits) <= j.most {
		return
	}
	for other := range j.visits {
		if closedByPeer(other.conn) {
			delete(j.visits, other)
		}
	}
	j.most = max(j.most, len(j.visits))
}

func (j *Judge) leave(v *visit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.visits, v)
}

// Counts returns how many requests are in flight, the most that ever were, and
// how many came in all.
func (j *Judge) Counts() (inFlight, most, total int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.visits), j.most, j.total
}

// Watch has f called at each request that comes in. It must be quick.
func (j *Judge) Watch(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.opened = f
}
