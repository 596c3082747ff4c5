package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fromHeader names to an upstream the gateway that a Load has asked.
const fromHeader = "Test-Gateway"

// healthPath is what health checks ask upstreams for.
const healthPath = "/test-health"

// sentHeader tells a Judge when a Load has sent a request, in nanoseconds since the start of
// this process, in which both run.
const sentHeader = "Test-Sent"

var started = time.Now()

// sentAt returns when a Load has sent the request; zero if none has.
func sentAt(r *http.Request) time.Time {
	since, err := strconv.ParseInt(r.Header.Get(sentHeader), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return started.Add(time.Duration(since))
}

// OK is the result of a request that was answered in full.
const OK = "ok"

// LoadOptions of a Load.
type LoadOptions struct {
	// Clients at each gateway.
	Clients int
	// Pause of a client after each answer.
	Pause time.Duration
	// Path to ask for; default "/".
	Path string
	// Patience of a client for one answer; default 30 s.
	Patience time.Duration
	// Ask is what a client does again and again at a gateway; default: it asks for
	// Path over HTTP. Patience is its to keep.
	Ask func(ctx context.Context, g *Gateway) error
	// Leave: clients sometimes leave before the answer, if Ask is nil.
	Leave bool
	// Dial reaches the gateways; default: as the test process does.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Load is clients that ask again and again, each at one gateway. Its methods are
// safe for concurrent use.
type Load struct {
	Stop func() // ends the clients; requests under way are broken off and not counted

	opt     LoadOptions
	http    *http.Client
	mu      sync.Mutex
	answers []Answer // in the order of Done
}

// Answer is what became of one request.
type Answer struct {
	Gateway    string
	Sent, Done time.Time
	// Result is OK, the word of Kgate-Refusal, or what went wrong.
	Result string
}

// StartLoad starts clients at the gateways, which keep their addresses when they
// are restarted. They end with the test.
func StartLoad(tb testing.TB, gateways []*Gateway, opt LoadOptions) *Load {
	tb.Helper()
	opt.Path = cmp.Or(opt.Path, "/")
	opt.Patience = cmp.Or(opt.Patience, patience)
	l := &Load{opt: opt}
	transport := &http.Transport{DialContext: opt.Dial, MaxIdleConnsPerHost: opt.Clients, DisableCompression: true}
	l.http = &http.Client{Transport: transport, Timeout: opt.Patience}
	ctx, cancel := context.WithCancel(tb.Context())
	var wg sync.WaitGroup
	for _, g := range gateways {
		for range opt.Clients {
			wg.Go(func() { l.loop(ctx, g) })
		}
	}
	l.Stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		transport.CloseIdleConnections()
	})
	tb.Cleanup(l.Stop)
	return l
}

func (l *Load) loop(ctx context.Context, g *Gateway) {
	ask := l.opt.Ask
	if url := strings.TrimSuffix(g.URL(), "/") + l.opt.Path; ask == nil {
		ask = func(ctx context.Context, g *Gateway) error { return l.ask(ctx, g.Name, url) }
		if l.opt.Leave {
			ask = askAndLeave(ask)
		}
	}
	for ctx.Err() == nil {
		a := Answer{Gateway: g.Name, Sent: time.Now(), Result: OK}
		err := ask(ctx, g)
		if err != nil {
			if ctx.Err() != nil {
				return // broken off by Stop
			}
			a.Result = err.Error()
		}
		l.mu.Lock()
		a.Done = time.Now() // under the lock: they are in order
		l.answers = append(l.answers, a)
		l.mu.Unlock()
		if err != nil {
			pause(ctx, 100*time.Millisecond)
		} else if l.opt.Pause > 0 {
			pause(ctx, l.opt.Pause)
		}
	}
}

// askAndLeave asks, and sometimes leaves before the answer.
func askAndLeave(ask func(ctx context.Context, g *Gateway) error) func(ctx context.Context, g *Gateway) error {
	return func(ctx context.Context, g *Gateway) error {
		if rand.IntN(4) > 0 {
			return ask(ctx, g)
		}
		soon, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(200))*time.Millisecond)
		defer cancel()
		if err := ask(soon, g); soon.Err() == nil {
			return err
		}
		return nil // it has left
	}
}

func (l *Load) ask(ctx context.Context, gateway, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set(fromHeader, gateway)
	req.Header.Set(sentHeader, strconv.FormatInt(int64(time.Since(started)), 10))
	res, err := l.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return fmt.Errorf("answer broken off: %w", err)
	}
	switch why := res.Header.Get("Kgate-Refusal"); {
	case res.StatusCode == http.StatusOK:
		return nil
	case why != "":
		return errors.New(why)
	default:
		return errors.New(res.Status)
	}
}

// pause waits, and reports whether ctx still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Since returns the answers of requests that ended since a time.
func (l *Load) Since(t time.Time) []Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.answers)
	for i > 0 && !l.answers[i-1].Done.Before(t) {
		i--
	}
	return slices.Clone(l.answers[i:])
}

// Served returns how many of the answers are OK, by gateway, among those that
// came before a time.
func Served(answers []Answer, until time.Time) map[string]int {
	n := make(map[string]int)
	for _, a := range answers {
		if a.Result == OK && a.Done.Before(until) {
			n[a.Gateway]++
		}
	}
	return n
}
