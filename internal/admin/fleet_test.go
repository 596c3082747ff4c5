package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// countingPeers count the questions, and take a while to answer.
type countingPeers struct {
	takes time.Duration

	mu    sync.Mutex
	asked []string
}

func (p *countingPeers) CallFleet(ctx context.Context, name, path string, body, into any) error {
	p.mu.Lock()
	p.asked = append(p.asked, name)
	p.mu.Unlock()
	select {
	case <-time.After(p.takes):
		return examplePeers{}.CallFleet(ctx, name, path, body, into)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// count returns how often each other gateway has been asked since the last count.
func (p *countingPeers) count() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := make(map[string]int)
	for _, name := range p.asked {
		n[name]++
	}
	p.asked = nil
	return n
}

// TestRounds: for any number of viewers the others are asked once a second. A gateway that is
// suspended or whose link is down is not asked, and a slow gateway is not waited for.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := example()
		s.Cluster.Members = append(s.Cluster.Members, Member{Name: "gw-5", Status: StatusAlive})
		peers := &countingPeers{takes: 10 * time.Millisecond}
		f := newFleet(Config{Source: &fixedSource{status: s}, Peers: peers})
		const viewers, seconds = 200, 10
		var wg sync.WaitGroup
		for range viewers {
			wg.Go(func() {
				for range seconds {
					got, err := f.status(t.Context())
					if want := []string{"gw-4", "gw-5"}; err != nil || !slices.Equal(got.Pools[0].Fleet.Missing, want) {
						t.Errorf("missing are %v, want %v; %v", got.Pools[0].Fleet.Missing, want, err)
					}
					time.Sleep(time.Second)
				}
			})
		}
		wg.Wait()
		if n := peers.count(); len(n) != 2 || n["gw-2"] != seconds || n["gw-4"] != seconds {
			t.Errorf("%d viewers in %d seconds have caused these questions: %v", viewers, seconds, n)
		}
		time.Sleep(time.Minute)
		if n := peers.count(); len(n) > 0 {
			t.Errorf("asked while nobody looked: %v", n)
		}

		peers.takes = time.Minute
		begun := time.Now()
		got, err := f.status(t.Context())
		if took := time.Since(begun); took > roundFor || err != nil || len(got.Pools[0].Fleet.Missing) != 3 {
			t.Errorf("with slow gateways: %v, %v after %v", got.Pools[0].Fleet.Missing, err, took)
		}
	})
}

// TestFarRound: a report over a long way takes several round trips, and a strange one no longer than
// roundMost.
func TestFarRound(t *testing.T) {
	for rtt, takes := range map[float64]time.Duration{300: 5 * 300 * time.Millisecond, 60_000: roundMost} {
		synctest.Test(t, func(t *testing.T) {
			s := example()
			s.Cluster.Members[1].RTTMillis = &rtt
			peers := &countingPeers{takes: takes - time.Millisecond}
			f := newFleet(Config{Source: &fixedSource{status: s}, Peers: peers})
			if got, err := f.status(t.Context()); err != nil || !slices.Equal(got.Pools[0].Fleet.Missing, []string{"gw-4"}) {
				t.Errorf("round trips of %v ms: %v, missing %v", rtt, err, got.Pools[0].Fleet.Missing)
			}
			time.Sleep(keepRound + time.Second)
			peers.takes = takes + time.Millisecond
			begun := time.Now()
			if got, err := f.status(t.Context()); err != nil || len(got.Pools[0].Fleet.Missing) != 2 || time.Since(begun) != takes {
				t.Errorf("round trips of %v ms: %v, missing %v after %v", rtt, err, got.Pools[0].Fleet.Missing, time.Since(begun))
			}
		})
	}
}

// silencedPeers are gw-2, which answers at once until it is silenced, and others that are always
// silent, so that each round takes its whole time.
type silencedPeers struct{ silent atomic.Bool }

func (p *silencedPeers) CallFleet(ctx context.Context, name, path string, body, into any) error {
	if name == "gw-2" && !p.silent.Load() {
		return examplePeers{}.CallFleet(ctx, name, path, body, into)
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestSilence: 0.9 s after a gateway has fallen silent no status says that it answers, or counts
// it among the losses that can still be tolerated.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := example()
		s.Cluster.Members = append(s.Cluster.Members, Member{Name: "gw-5", Status: StatusAlive, LinkUp: true})
		peers := &silencedPeers{}
		f := newFleet(Config{Source: &fixedSource{status: s}, Peers: peers})
		answers := func() (bool, int) {
			got, err := f.status(t.Context())
			i := slices.IndexFunc(got.Cluster.Members, func(m Member) bool { return m.Name == "gw-2" })
			if err != nil || i < 0 {
				t.Fatal(got.Cluster.Members, err)
			}
			return got.Cluster.Members[i].Answers, got.Cluster.LossesTolerated
		}
		was, tolerated := answers()
		if !was {
			t.Fatal("gw-2 does not answer")
		}
		for i := range 20 { // at any point of a round
			peers.silent.Store(false)
			time.Sleep(2 * time.Second)
			quiet := time.Now().Add(time.Second + time.Duration(i)*70*time.Millisecond)
			time.AfterFunc(time.Until(quiet), func() { peers.silent.Store(true) })
			for time.Since(quiet) < 2*time.Second {
				if says, now := answers(); time.Since(quiet) >= keepRound+roundFor && (says || now >= tolerated) {
					t.Fatalf("after %v of silence it answers: %t, %d losses are tolerated, before %d", time.Since(quiet), says, now, tolerated)
				}
				time.Sleep(37 * time.Millisecond)
			}
		}
	})
}

// TestRoundOfWhoLeaves: a client that leaves does not end a round that others wait for.
func TestRoundOfWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(Config{Source: &fixedSource{status: example()}, Peers: &countingPeers{takes: 100 * time.Millisecond}})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = f.status(ctx) }()
		synctest.Wait()
		cancel()
		got, err := f.status(t.Context())
		if err != nil || !slices.Equal(got.Pools[0].Fleet.Missing, []string{"gw-4"}) {
			t.Errorf("%v, missing %v", err, got.Pools[0].Fleet.Missing)
		}
		// A client that waits for a round that another began may leave, too.
		time.Sleep(2 * keepRound)
		go func() { _, _ = f.status(t.Context()) }()
		synctest.Wait()
		if _, err := f.status(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		time.Sleep(roundFor) // the round's end
	})
}

// TestMerge: the fleet's figures are sums, maxima and lists of the gateways' figures.
func TestMerge(t *testing.T) {
	f := newFleet(Config{Source: &fixedSource{status: example(), entries: exampleEntries()}, Peers: examplePeers{}})
	s, entries, err := f.look(t.Context(), question{entries: 2})
	if err != nil {
		t.Fatal(err)
	}
	p := s.Pools[0].Fleet
	// gw-1 has tokens 0 to 4, gw-2 has 4 to 7: token 4 has moved and is one.
	if p.InFlight != 8 || p.Waiting != 31 || p.OldestSeconds != 7 || p.Baton != "gw-2" || p.FreeTokens != 2 {
		t.Errorf("%+v", p)
	}
	if w := p.AccessWindow; w.Count != 2468 || w.MeanMillis != 12.5 || w.MaxMillis != 2340 || p.SpreadMillis != 2327.5 {
		t.Errorf("window %+v, spread %v", w, p.SpreadMillis)
	}
	if past := p.Past.SpreadMillis; len(past) != PastValues || past[0] != nil || *past[PastValues-3] != 30 || *past[PastValues-2] != 20 || *past[PastValues-1] != 2327.5 {
		t.Errorf("the past is %d values", len(past))
	}
	line := entries["downloads"].Waiting
	if len(line) != 2 || line[0].ID != "downloads.5.31" || line[0].Position != 1 || line[1].ID != "downloads.7.102" {
		t.Errorf("the line: %+v", line)
	}
	for _, m := range s.Cluster.Members {
		if want := m.Name == "gw-1" || m.Name == "gw-2"; m.Answers != want || m.Answers != (m.LeaseSeconds != nil) {
			t.Errorf("%+v", m)
		}
	}
	// A gateway that has come back as another incarnation has not answered yet.
	again := example()
	again.Cluster.Members[1].Node++
	f = newFleet(Config{Source: &fixedSource{status: again}, Peers: examplePeers{}})
	if s, _ := f.status(t.Context()); s.Cluster.Members[1].Answers {
		t.Error("the answer of an incarnation before counts")
	}
}

// TestMergeEvents: an event that only another gateway has seen is shown, and an event that all have
// seen is shown once.
func TestMergeEvents(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	event := func(seconds int, text string) Event {
		return Event{At: at.Add(time.Duration(seconds) * time.Second), Text: text}
	}
	report := func(events ...Event) Report { return Report{Status: Status{Events: events}} }
	own := []Event{event(100, "gw-1 joined"), event(300, "gw-3 is lost")}
	got := mergeEvents(own, map[string]Report{
		"gw-1": report(own...),
		"gw-2": report(event(10, "gw-1 is lost"), event(101, "gw-1 joined"), event(302, "gw-3 is lost"), event(330, "gw-3 joined")),
		"gw-4": report(event(11, "gw-1 is lost"), event(200, "gw-3 is lost"), event(331, "gw-3 joined")),
	})
	want := []Event{event(10, "gw-1 is lost"), own[0], event(200, "gw-3 is lost"), own[1], event(330, "gw-3 joined")}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// someLines are the lines of one gateway, with one entry that waits.
type someLines struct {
	gateway, id, trace string
	cancelled          []string
}

func (l *someLines) Find(trace string) (string, Entries) {
	if trace != l.trace {
		return "", Entries{}
	}
	return "downloads", Entries{Waiting: []Entry{{ID: l.id, Gateway: l.gateway, Seconds: 3.5, Client: "192.0.2.1", Trace: trace}}}
}

func (l *someLines) Position(context.Context, string, time.Time) (int, time.Duration) {
	return 3, 90 * time.Second
}

func (l *someLines) Gateway(id string) (string, error) {
	_, at, ok := strings.Cut(id, "@")
	if !ok {
		return "", fmt.Errorf("%w: nothing is called %q", ErrUnknown, id)
	}
	return at, nil
}

func (l *someLines) Cancel(id string) error {
	if id != l.id {
		return ErrUnknown
	}
	l.cancelled = append(l.cancelled, id)
	return nil
}

// onePeer is another gateway, reached without a network.
type onePeer struct {
	name    string
	handler http.Handler
}

func (p onePeer) CallFleet(ctx context.Context, name, path string, body, into any) error {
	if name != p.name {
		return errors.New("connection refused")
	}
	s := httptest.NewServer(p.handler)
	defer s.Close()
	return callPeer(ctx, s.URL+path, body, into)
}

// TestOverGateways: a request that waits at another gateway is found, explained and cancelled from
// here.
func TestOverGateways(t *testing.T) {
	there := &someLines{gateway: "gw-2", id: "x@gw-2", trace: strings.Repeat("cd", 16)}
	other := example()
	other.Gateway = Gateway{Name: "gw-2", Node: 5, Ready: true}
	token := "a token of sixteen"
	tokens := func() []string { return []string{token, "the token before"} }
	theirs := tokens
	said := new(bytes.Buffer)
	peer := onePeer{"gw-2", NewPeerHandler(Config{
		Source: &fixedSource{status: other}, Lines: there, Tokens: func() []string { return theirs() }, Log: slog.New(slog.NewTextHandler(said, nil)),
	})}
	here := &someLines{gateway: "gw-1", id: "y@gw-1"}
	h := NewHandler(Config{
		Source: &fixedSource{status: example(), entries: exampleEntries()}, Lines: here, Peers: peer,
		Tokens: tokens,
	})
	why := request{path: "/api/v1/why?trace=" + strings.ToUpper(there.trace)}.to(t, h)
	for _, want := range []string{
		`"id":"x@gw-2"`, `"ahead":2`, `"expected_seconds":90`, "2 are ahead of it", "the longest for 61 s by 192.0.2.2 PUT /b at gw-1",
		"Expected wait: about 90 s more", "1 slots may still be in use", "gw-4 did not answer",
	} {
		if why.status != http.StatusOK || !strings.Contains(why.text, want) {
			t.Errorf("why: %d, without %q: %s", why.status, want, why.text)
		}
	}
	shown := [2]string{"Authorization", "Bearer " + token}
	for _, tc := range []struct {
		name, id string
		header   [2]string
		status   int
	}{
		{"without the token", "y@gw-1", [2]string{}, http.StatusUnauthorized},
		{"for a page of elsewhere", "y@gw-1", [2]string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"here", "y@gw-1", shown, http.StatusNoContent},
		{"there", "x@gw-2", shown, http.StatusNoContent},
		{"gone", "z@gw-2", shown, http.StatusNotFound},
		{"of no gateway", "z", shown, http.StatusNotFound},
		{"of a silent one", "z@gw-4", shown, http.StatusServiceUnavailable},
	} {
		r := request{method: http.MethodDelete, path: "/api/v1/line/" + tc.id, header: tc.header, remote: "10.0.0.9:1", onNetwork: true}.to(t, h)
		if r.status != tc.status {
			t.Errorf("cancel %s: %d, want %d: %s", tc.name, r.status, tc.status, r.text)
		}
	}
	if len(here.cancelled) != 1 || len(there.cancelled) != 1 {
		t.Errorf("cancelled here %v, there %v", here.cancelled, there.cancelled)
	}
	// A gateway with another token asks on its own behalf.
	theirs = func() []string { return []string{"another token of theirs"} }
	r := request{method: http.MethodDelete, path: "/api/v1/line/x@gw-2", header: shown, remote: "10.0.0.9:1", onNetwork: true}.to(t, h)
	if r.status != http.StatusServiceUnavailable || !strings.Contains(r.text, "node.admin_token_file") || len(there.cancelled) != 1 {
		t.Errorf("with another token: %d: %s", r.status, r.text)
	}
	if text := said.String(); strings.Count(text, "taken out of the line for another gateway") != 1 || strings.Count(text, "change refused") != 1 || strings.Contains(text, token) {
		t.Errorf("log: %s", text)
	}
}

// TestPeerHandlerRefuses: the peer handler answers invalid calls with an error.
func TestPeerHandlerRefuses(t *testing.T) {
	h := NewPeerHandler(Config{Source: &fixedSource{status: example(), entries: exampleEntries()}, Lines: &someLines{}})
	for _, tc := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/cancel", "{", 400},
		{"POST", "/cancel", strings.Repeat(" ", maxBody) + "{}", 400},
		{"GET", "/cancel", "", 405},
		{"GET", "/x", "", 404},
		{"POST", "/cancel", `{"ID":"x"}`, 200},
		{"GET", "/trace", "", 200},
		{"GET", "/report?entries=x", "", 200},
		{"GET", "/report?entries=-1", "", 200},
		{"GET", "/report?entries=99999999999", "", 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, strings.NewReader(tc.body))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tc.status {
			t.Errorf("%s %s: %d, want %d: %s", tc.method, tc.path, w.Code, tc.status, w.Body)
		}
	}
}

// A gateway that has lost its lease is still in its own view, as it was. It is reached from here all the same.
func TestOneselfAsBefore(t *testing.T) {
	self := Gateway{Name: "gw-1", Reason: "no leader"}
	s := Status{Gateway: self, Cluster: Cluster{View: 4, Members: []Member{{Name: "gw-1", Node: 5, Status: StatusAlive, Self: true, LinkUp: true}}}}
	s = merge(s, map[string]Report{"gw-1": {Status: Status{Gateway: self}}}, nil)
	if word := s.Cluster.Members[0].Word(); word != "not ready" {
		t.Errorf("it is %s", word)
	}
	if troubles := strings.Join(s.Troubles(), " "); strings.Contains(troubles, "gw-1") {
		t.Error(troubles)
	}
}

// Two gateways that see the same cluster name the same lost gateway, also the one that started after its loss.
func TestOthersAwaitALostGateway(t *testing.T) {
	here, there := Member{Name: "gw-1", Node: 5, Status: StatusAlive, Self: true, LinkUp: true}, Member{Name: "gw-2", Node: 6, Status: StatusAlive, LinkUp: true}
	lost := Member{Name: "gw-0", Node: 3, Status: StatusLost}
	two := Status{Gateway: Gateway{Name: "gw-2", Node: 6, Ready: true}, Cluster: Cluster{Members: []Member{there, lost}}}
	one := Status{Gateway: Gateway{Name: "gw-1", Node: 5, Ready: true}, Cluster: Cluster{Members: []Member{here, there}}}
	got := merge(one, map[string]Report{"gw-1": {Status: one}, "gw-2": {Status: two}}, nil).Cluster.Members
	if len(got) != 3 || got[0].Name != "gw-0" || got[0].Status != StatusLost {
		t.Errorf("%+v", got)
	}
	two.Gateway.Ready = false
	if got := merge(one, map[string]Report{"gw-2": {Status: two}}, nil).Cluster.Members; len(got) != 2 {
		t.Errorf("who is in no cluster knows no lost ones: %+v", got)
	}
}

// TestSilentVoters: a voter that does not answer counts as lost, though its link is still up.
func TestSilentVoters(t *testing.T) {
	member := func(name string, node uint64) Member {
		return Member{Name: name, Node: node, Status: StatusAlive, Votes: true, LinkUp: true, Self: node == 1}
	}
	report := func(node uint64) Report { return Report{Status: Status{Gateway: Gateway{Node: node, Ready: true}}} }
	all := map[string]Report{"gw-1": report(1), "gw-2": report(2), "gw-3": report(3)}
	for i, want := range []struct{ agreement, ifLost string }{
		{"3 voters, 1 more may be lost", "go on"}, {"3 voters, 0 more may be lost", "all stop"}, {"3 voters, too few of them reached", ""},
	} {
		s := Status{Cluster: Cluster{View: 4, Voters: 3, LossesTolerated: 1, Members: []Member{member("gw-1", 1), member("gw-2", 2), member("gw-3", 3)}}}
		c := merge(s, all, nil).Cluster
		if got := c.Agreement(); got != want.agreement {
			t.Errorf("%d silent: %q, want %q", i, got, want.agreement)
		}
		if got := c.IfLost(c.Members[0]); got != want.ifLost {
			t.Errorf("%d silent: gw-1 %q, want %q", i, got, want.ifLost)
		}
		delete(all, fmt.Sprintf("gw-%d", 3-i))
	}
}
