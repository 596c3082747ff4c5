package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// The examples are a fleet of three gateways on a bad evening: gw-3 is lost, and
// a fourth does not answer.

func example() Status {
	rtt := 0.25
	return Status{
		Version: "1.2.3",
		Gateway: Gateway{Name: "gw-1", Node: 7, Ready: true, UptimeSeconds: 93784.5, LeaseSeconds: 2.5},
		Cluster: Cluster{View: 9, Leader: "gw-2", Voters: 3, Members: []Member{
			{Name: "gw-1", Node: 7, Addr: "10.0.0.1:7080", Status: StatusAlive, Votes: true, Self: true, LinkUp: true, RingPlace: 2, Copies: []string{"gw-4", "gw-2"}},
			{Name: "gw-2", Node: 5, Addr: "10.0.0.2:7080", Status: StatusAlive, Votes: true, LinkUp: true, RTTMillis: &rtt, RingPlace: 1, Copies: []string{"gw-1", "gw-4"}},
			{Name: "gw-3", Node: 6, Status: StatusSuspended, Votes: true, RingPlace: 3, Successor: "gw-4", LostReason: "no lease renewed in the last 3.2 s, and its lease is over, reported by gw-2"},
			{Name: "gw-4", Node: 8, Addr: "10.0.0.4:7080", Status: StatusAlive, LinkUp: true, RingPlace: 4, Copies: []string{"gw-2", "gw-1"}},
		}},
		Pools: []Pool{{
			Name: "downloads", K: 8, Binding: "late", Epoch: 4, Home: "gw-2", InFlight: 5, Waiting: 12, OldestSeconds: 3.5,
			FreeTokensHere: 1, Withheld: 1, AccessWindow: AccessWindow{MeanMillis: 12.5, MaxMillis: 2340, Count: 1234},
			Shares: []Share{
				{Client: "192.0.2.1", Weight: 3, Slots: 1.5, InUse: 2, Waiting: 7, Wait: Times{40, 20}, OldestSeconds: 3.5},
				{Client: "#1f2e3d4c", Weight: 1, Slots: 0.5},
			},
		}},
		Events: []Event{{At: time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC), Text: "gw-3 is lost: no lease renewed in the last 3.2 s, and its lease is over, reported by gw-2"}},
	}
}

// exampleReport returns the report of a gateway with this status, with entries of the first pool.
func exampleReport(s Status) Report {
	r := Report{Status: s, Past: map[string][]AccessWindow{}, Tokens: map[string][]int{}, Entries: map[string]Entries{}}
	for i, p := range s.Pools {
		if i == 0 {
			r.Past[p.Name] = append(make([]AccessWindow, PastValues-3),
				AccessWindow{MeanMillis: 10, MaxMillis: 30, Count: 1}, AccessWindow{MeanMillis: 10, MaxMillis: 30, Count: 100}, p.AccessWindow)
		}
		for t := range p.InFlight {
			r.Tokens[p.Name] = append(r.Tokens[p.Name], t)
		}
	}
	return r
}

func exampleEntries() map[string]Entries {
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	return map[string]Entries{"downloads": {
		Waiting: []Entry{
			{ID: "downloads.7.102", Gateway: "gw-1", Seconds: 3.5, Arrived: at, Client: "192.0.2.1", Method: "GET", Path: "/files/a.iso", Trace: strings.Repeat("ab", 16)},
			{ID: "downloads.7.103", Gateway: "gw-1", Seconds: 1, Arrived: at.Add(time.Second), Ticket: true, Note: "nightly job"},
		},
		Holding: []Entry{{ID: "downloads.7.90", Gateway: "gw-1", Seconds: 61, Arrived: at, Client: "192.0.2.2", Method: "PUT", Path: "/b"}},
	}}
}

// examplePeers are the other gateways: gw-2 answers, gw-4 does not.
type examplePeers struct{}

func (examplePeers) CallFleet(_ context.Context, name, path string, _, into any) error {
	if name != "gw-2" {
		return errors.New("connection refused")
	}
	if !strings.HasPrefix(path, "/report?") {
		return errors.New("no such path")
	}
	s := example()
	s.Gateway = Gateway{Name: "gw-2", Node: 5, Ready: true, UptimeSeconds: 10, LeaseSeconds: 1.5}
	s.Pools[0].InFlight, s.Pools[0].Waiting, s.Pools[0].OldestSeconds, s.Pools[0].BatonHere = 4, 19, 7, true
	r := exampleReport(s)
	// Token 4 was on its way from gw-1 when gw-2 answered.
	r.Tokens["downloads"] = []int{4, 5, 6, 7}
	r.Entries["downloads"] = Entries{Waiting: []Entry{{ID: "downloads.5.31", Gateway: "gw-2", Seconds: 7, Client: "192.0.2.9", Method: "GET", Path: "/c"}}}
	return copyInto(into, r)
}

// copyInto copies an answer by way of JSON, as the network does.
func copyInto(into any, answer any) error {
	data, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("example: %w", err)
	}
	return json.Unmarshal(data, into)
}

// callPeer calls another gateway as gateways do.
func callPeer(ctx context.Context, url string, body, into any) error {
	method, content := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(content))
	if err != nil {
		return err
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return json.NewDecoder(res.Body).Decode(into)
}
