package admin

// Status is the document at /api/v1/status, and what kgate status --json
// prints. Its keys are a public interface: keys are added, never renamed,
// never given another meaning. Lists are never null.
type Status struct {
	// Version of kgate that the gateway runs.
	Version string  `json:"version"`
	Gateway Gateway `json:"gateway"`
	Cluster Cluster `json:"cluster"`
	// Pools in the order of the configuration.
	Pools []Pool `json:"pools"`
}

// Gateway is the gateway that answers.
type Gateway struct {
	Name string `json:"name"`
	// Node is the number of this incarnation in the agreed view; 0 while it is
	// in none.
	Node uint64 `json:"node"`
	// Ready tells whether it admits requests; if not, Reason says why, in
	// plain words.
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	// UptimeSeconds since the process started.
	UptimeSeconds float64 `json:"uptime_seconds"`
	// LeaseSeconds is how long it may still admit without a renewal of its lease;
	// 0: it has none.
	LeaseSeconds float64 `json:"lease_seconds"`
}

// Cluster is the cluster as the gateway that answers sees it.
type Cluster struct {
	// View is the number of the agreed view.
	View uint64 `json:"view"`
	// Leader is the name of the gateway that leads the agreement on views;
	// empty while there is none.
	Leader string `json:"leader"`
	// Members of the view, by name.
	Members []Member `json:"members"`
}

// Member is one gateway of the cluster.
type Member struct {
	Name string `json:"name"`
	Node uint64 `json:"node"`
	// Addr is where other gateways reach it, host:port.
	Addr string `json:"addr"`
	// Status in the agreed view: alive, or suspended until its lease has run out.
	Status string `json:"status"`
	// Self marks the gateway that answers.
	Self bool `json:"self"`
	// LinkUp tells whether the link to it is up; true for Self.
	LinkUp bool `json:"link_up"`
	// RTTMillis is the round trip to it, absent where it is not known.
	RTTMillis *float64 `json:"rtt_ms,omitempty"`
}

// Pool is one pool as the gateway that answers sees it.
type Pool struct {
	Name string `json:"name"`
	// K is how many requests may be in flight over all gateways together.
	K int `json:"k"`
	// Binding is late or early.
	Binding string `json:"binding"`
	// Epoch is the number of the view in which the pool's line was last
	// formed.
	Epoch uint64 `json:"epoch"`
	// Home is the name of the gateway that keeps the pool's directory.
	Home string `json:"home"`
	// InFlight and Waiting count requests of the gateway that answers.
	InFlight int `json:"in_flight"`
	Waiting  int `json:"waiting"`
	// BatonHere tells whether that gateway holds the baton, FreeTokensHere how
	// many free tokens it has.
	BatonHere      bool `json:"baton_here"`
	FreeTokensHere int  `json:"free_tokens_here"`
	// Withheld tokens may still be in use at gateways that are lost.
	Withheld int `json:"withheld"`
	// AccessWindow sums up the times from arrival to admission over the last
	// 60 seconds, on that gateway.
	AccessWindow AccessWindow `json:"access_window"`
}

// AccessWindow sums up access times.
type AccessWindow struct {
	MeanMillis float64 `json:"mean_ms"`
	MaxMillis  float64 `json:"max_ms"`
	Count      uint64  `json:"count"`
}

// withLists returns s with empty lists in place of absent ones.
func (s Status) withLists() Status {
	if s.Pools == nil {
		s.Pools = []Pool{}
	}
	if s.Cluster.Members == nil {
		s.Cluster.Members = []Member{}
	}
	return s
}
