package admin

import (
	"fmt"
	"slices"
)

// Status is the document at /api/v1/status; kgate status --json prints it. Its keys are a public
// interface: keys are added, never renamed, never given another meaning. Lists are never null.
type Status struct {
	// Version of kgate that the gateway runs.
	Version string  `json:"version"`
	Gateway Gateway `json:"gateway"`
	Cluster Cluster `json:"cluster"`
	// Pools in the order of the configuration.
	Pools []Pool `json:"pools"`
	// Events of the last 15 minutes that any gateway has seen, the oldest first.
	Events []Event `json:"events"`
}

// Gateway is the gateway that answers.
type Gateway struct {
	Name string `json:"name"`
	// Node is the number of this incarnation in the agreed view; 0 while it is no member.
	Node uint64 `json:"node"`
	// Ready is whether it admits requests; if not, Reason says why.
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	// Drained tells that it was told to drain, and that no request waits or is in
	// flight any more. Tickets stay.
	Drained bool `json:"drained,omitempty"`
	// UptimeSeconds since the process started.
	UptimeSeconds float64 `json:"uptime_seconds"`
	// LeaseSeconds is how long it may still admit without a renewal of its lease;
	// 0: it has none.
	LeaseSeconds float64 `json:"lease_seconds"`
	// Troubles are faults of this gateway's own files: a configuration that could not be read
	// again, a certificate that ends soon, a k that differs from the cluster's. Each is a
	// sentence without its full stop.
	Troubles []string `json:"troubles"`
}

// Cluster is the cluster as the gateway that answers sees it.
type Cluster struct {
	// View is the number of the agreed view.
	View uint64 `json:"view"`
	// Leader is the name of the gateway that leads the agreement on views;
	// empty while there is none.
	Leader string `json:"leader"`
	// Voters counts the gateways that vote on views. LossesTolerated is how many of them may be
	// lost now while the others can still agree; voters that the answering gateway cannot reach
	// count as lost. Below 0 they cannot agree now.
	Voters          int `json:"voters"`
	LossesTolerated int `json:"losses_tolerated"`
	// Members of the view, by name.
	Members []Member `json:"members"`
}

// Member is one gateway of the cluster.
type Member struct {
	Name string `json:"name"`
	Node uint64 `json:"node"`
	// Addr is where other gateways reach it, host:port.
	Addr string `json:"addr"`
	// Status in the agreed view: alive, suspended until its lease has run out, or lost if it has
	// gone without leaving and has not come back.
	Status string `json:"status"`
	// Votes: it has a vote on views.
	Votes bool `json:"votes"`
	// Witness: it has no part in the pools.
	Witness bool `json:"witness,omitempty"`
	// Self marks the gateway that answers.
	Self bool `json:"self"`
	// LinkUp tells whether the link to it is up; true for Self.
	LinkUp bool `json:"link_up"`
	// RTTMillis is the round trip to it, absent where it is not known.
	RTTMillis *float64 `json:"rtt_ms,omitempty"`
	// Answers tells whether it has reported within the last second. Only then are Ready to
	// LeaseSeconds known.
	Answers bool   `json:"answers"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Version string `json:"version,omitempty"`
	// Troubles as in Gateway.
	Troubles []string `json:"troubles"`
	// LeaseSeconds is how long it may still admit without a renewal of its lease.
	LeaseSeconds *float64 `json:"lease_seconds,omitempty"`
	// RingPlace is the place on the ring, clockwise from 1, lost gateways included; 0: not known.
	RingPlace int `json:"ring_place"`
	// Copies are the gateways that keep copies of its tickets; the first would take them over.
	Copies []string `json:"copies"`
	// Successor of a suspended or lost gateway has taken over its tickets.
	Successor string `json:"heir,omitempty"`
	// LostReason says why a suspended or lost gateway was removed.
	LostReason string `json:"lost_reason,omitempty"`
}

// The statuses of members.
const (
	StatusAlive     = "alive"
	StatusSuspended = "suspended"
	StatusLost      = "lost"
)

// Pool is one pool as the gateway that answers sees it, and in Fleet over all
// gateways.
type Pool struct {
	Name string `json:"name"`
	// K is how many requests may be in flight over all gateways together.
	K int `json:"k"`
	// Binding is late or early.
	Binding string `json:"binding"`
	// Epoch is the number of the view in which the pool's line was last formed.
	Epoch uint64 `json:"epoch"`
	// Home is the name of the gateway that keeps the pool's directory.
	Home string `json:"home"`
	// InFlight and Waiting count requests of the gateway that answers.
	InFlight int `json:"in_flight"`
	Waiting  int `json:"waiting"`
	// OldestSeconds is how long the oldest waiting request there has waited.
	OldestSeconds float64 `json:"oldest_seconds"`
	// BatonHere tells whether that gateway holds the baton, FreeTokensHere how
	// many free tokens it has.
	BatonHere      bool `json:"baton_here"`
	FreeTokensHere int  `json:"free_tokens_here"`
	// Withheld tokens may still be in use at gateways that are lost.
	Withheld int `json:"withheld"`
	// Rate of the pool; absent if it has none.
	Rate *PoolRate `json:"rate,omitempty"`
	// AccessWindow sums up the times from arrival to admission over the last
	// 60 seconds, on that gateway.
	AccessWindow AccessWindow `json:"access_window"`
	// TicketsHolding counts the tickets there that hold a slot. OldestHoldSeconds is how long the
	// slot held longest has been held. Client is the client with most places.
	TicketsHolding    int     `json:"tickets_holding"`
	OldestHoldSeconds float64 `json:"oldest_hold_seconds"`
	Client            Client  `json:"client"`
	// Upstreams as that gateway sees them, in the order of its configuration. Recent counts its
	// ended requests.
	Upstreams []Upstream `json:"upstreams"`
	Recent    Recent     `json:"recent"`
	// Shares are those of the clients there that have had most of late; absent: the order is not fair.
	Shares []Share `json:"shares,omitempty"`
	// Fleet is the pool over all gateways.
	Fleet PoolFleet `json:"fleet"`
}

// PoolRate is in bytes per second.
type PoolRate struct {
	// Down and Up are what all gateways together may move to clients and from them;
	// 0: no bound.
	Down int64 `json:"down"`
	Up   int64 `json:"up"`
	// DownHere and UpHere are the shares of the gateway that answers.
	DownHere int64 `json:"down_here"`
	UpHere   int64 `json:"up_here"`
}

// PoolFleet is a pool over all gateways, by their reports of the last second.
type PoolFleet struct {
	// Missing are the gateways of the cluster that did not answer, so that their part is missing.
	Missing  []string `json:"missing"`
	InFlight int      `json:"in_flight"`
	Waiting  int      `json:"waiting"`
	// OldestSeconds is how long the oldest waiting request has waited.
	OldestSeconds float64 `json:"oldest_seconds"`
	FreeTokens    int     `json:"free_tokens"`
	// Baton is the name of the gateway that holds the baton; empty while it is on
	// its way.
	Baton string `json:"baton"`
	// AccessWindow sums up the waits of the last 60 seconds. SpreadMillis is the longest of them,
	// or the wait of the oldest waiting request if that is longer, less their mean.
	AccessWindow AccessWindow `json:"access_window"`
	SpreadMillis float64      `json:"spread_ms"`
	// TicketsHolding to Recent are as in Pool.
	TicketsHolding    int        `json:"tickets_holding"`
	OldestHoldSeconds float64    `json:"oldest_hold_seconds"`
	Client            Client     `json:"client"`
	Upstreams         []Upstream `json:"upstreams"`
	Recent            Recent     `json:"recent"`
	// Shares are those of the ten clients that have had most of late.
	Shares []Share `json:"shares,omitempty"`
	// Gateways has each gateway's part, by name.
	Gateways []PoolPart `json:"gateways"`
	// Past is the spread of the last 15 minutes.
	Past Past `json:"past"`
}

// PoolPart is one gateway's part in a pool.
type PoolPart struct {
	Name          string       `json:"name"`
	InFlight      int          `json:"in_flight"`
	Waiting       int          `json:"waiting"`
	OldestSeconds float64      `json:"oldest_seconds"`
	FreeTokens    int          `json:"free_tokens"`
	Baton         bool         `json:"baton"`
	AccessWindow  AccessWindow `json:"access_window"`
	Client        Client       `json:"client"`
}

// Past is the spread of a pool over the last minutes.
type Past struct {
	// StepSeconds are between two values.
	StepSeconds int `json:"step_seconds"`
	// SpreadMillis ends now; null where no request waited and none had been admitted in the 60
	// seconds before.
	SpreadMillis []*float64 `json:"spread_ms"`
}

// AccessWindow sums up the waits of the requests admitted in 60 seconds.
type AccessWindow struct {
	MeanMillis float64 `json:"mean_ms"`
	MaxMillis  float64 `json:"max_ms"`
	Count      uint64  `json:"count"`
	// OldestMillis is how long the oldest request that still waited at the end had waited.
	OldestMillis float64 `json:"oldest_ms"`
}

// pool returns the pool of that name, or ErrUnknown.
func (s Status) pool(name string) (*Pool, error) {
	for i := range s.Pools {
		if s.Pools[i].Name == name {
			return &s.Pools[i], nil
		}
	}
	return nil, fmt.Errorf("%w: there is no pool %.100q", ErrUnknown, name)
}

// withLists returns s with empty lists in place of absent ones.
func (s Status) withLists() Status {
	s.Events, s.Gateway.Troubles = list(s.Events), list(s.Gateway.Troubles)
	s.Pools, s.Cluster.Members = slices.Clone(list(s.Pools)), slices.Clone(list(s.Cluster.Members))
	for i := range s.Cluster.Members {
		m := &s.Cluster.Members[i]
		m.Copies, m.Troubles = list(m.Copies), list(m.Troubles)
	}
	for i := range s.Pools {
		f := &s.Pools[i].Fleet
		s.Pools[i].Upstreams, f.Upstreams = list(s.Pools[i].Upstreams), list(f.Upstreams)
		f.Missing, f.Gateways, f.Past.SpreadMillis = list(f.Missing), list(f.Gateways), list(f.Past.SpreadMillis)
	}
	return s
}

func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
