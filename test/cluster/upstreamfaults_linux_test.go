package cluster

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy/tcpstate"
)

// breakOff ends the upstream as a process is killed, and leaves at its address what serve does with
// a listener, until restore is called.
func (u *upstreamOfK) breakOff(t *testing.T, serve func(net.Listener)) (restore func()) {
	t.Helper()
	if err := u.server.Close(); err != nil {
		t.Fatal(err)
	}
	if serve == nil {
		return func() {}
	}
	var c net.ListenConfig
	c.SetMultipathTCP(false) // its sockets take no filter
	l, err := c.Listen(t.Context(), "tcp", u.addr)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { serve(l) })
	restore = sync.OnceFunc(func() { _ = l.Close(); wg.Wait() })
	t.Cleanup(restore)
	return restore
}

// accept accepts connections until the listener is closed.
func accept(l net.Listener, each func(*net.TCPConn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		each(c.(*net.TCPConn))
	}
}

// upstreamFaults are the ways in which an upstream is not there.
var upstreamFaults = []struct {
	name  string
	serve func(net.Listener) // nil: nobody listens
	// unsent: a connection is never made, so none of its requests is lost but those in flight.
	unsent bool
}{
	{"refused", nil, true},
	{"silent", func(l net.Listener) {
		tcpstate.ConnectNoMore(l)
		accept(l, func(c *net.TCPConn) { _ = c.Close() })
	}, true},
	{"resets", func(l net.Listener) {
		accept(l, func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() })
	}, false},
	{"500s", func(l net.Listener) {
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })}
		_ = s.Serve(l)
		_ = s.Close()
	}, false},
}

// TestUpstreamFaults: one of three upstreams dies in each way under load, and returns. No request is
// lost that was not sent, the places of the others are in use within a second, and its own within the
// health interval.
func TestUpstreamFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	for _, health := range []string{"interval: 500ms", "interval: 500ms, path: " + healthPath} {
		t.Run(health, func(t *testing.T) {
			t.Parallel()
			upstreamFaultsOf(t, health)
		})
	}
}

func upstreamFaultsOf(t *testing.T, health string) {
	const (
		mean     = 60 * time.Millisecond
		interval = 500 * time.Millisecond
		dial     = time.Second
	)
	checks := strings.Contains(health, "path")
	c, all := startUpstreamsOfK(t, Options{Settings: fmt.Sprintf("health: {%s}, transport: {dial_timeout: %v}", health, dial)}, mean, 2, 2, 4)
	c.Causes("upstream is unhealthy", "upstream failed", "upstream fails requests", "upstream is slow")
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 8})
	defer load.Stop()
	Span(t, time.Second)
	for i, fault := range upstreamFaults {
		u := all[i%len(all)]
		others := slices.DeleteFunc(slices.Clone(all), func(o *upstreamOfK) bool { return o == u })
		gone := time.Now()
		restore := u.breakOff(t, fault.serve)
		for _, o := range others {
			o.AwaitInFlight(t, fmt.Sprintf("%s: another of k %d", fault.name, o.k), gone.Add(100*time.Millisecond), o.k, time.Second)
		}
		Span(t, time.Second) // all have found out
		since := time.Now()
		Span(t, 2*time.Second)
		busy, steady := slotsBusy(others, since, time.Now()), lost(load, since)
		restore()
		u.start(t, mean)
		back := time.Now()
		u.AwaitInFlight(t, fault.name+": it is back", back, u.k, interval+interval/10)
		Span(t, dial)
		t.Logf("%s: slots of the others busy %.1f %%; lost: %v, of which after the first second %v", fault.name, 100*busy, lost(load, gone), steady)
		if Soak() && busy < 0.98 && (fault.unsent || checks) {
			t.Errorf("%s: slots of the others busy %.1f %%", fault.name, 100*busy)
		}
		total, late := 0, 0
		for _, n := range lost(load, gone) {
			total += n
		}
		for _, n := range steady {
			late += n
		}
		switch {
		case fault.unsent && total > 2*u.k: // in flight, or written as the connection was being closed
			t.Errorf("%s: %d requests lost, %d were in flight", fault.name, total, u.k)
		case (fault.unsent || checks) && late > 0:
			t.Errorf("%s: %d requests lost when the gateways knew", fault.name, late)
		}
	}
	load.Stop()
	checkUpstreams(t, all)
}

// lost counts the requests that were begun since then and not served, by what became of them.
func lost(l *Load, since time.Time) map[string]int {
	out := make(map[string]int)
	for _, a := range l.Since(since) {
		if a.Result != OK {
			out[a.Result]++
		}
	}
	return out
}
