package kgate

import (
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/kgate/kgate"
)

// Pool of slots. The nodes that name a pool the same share its slots.
type Pool struct {
	// Name of the pool: 1 to 64 of a-z, 0-9, - _ and the dot.
	Name string `json:"pool"`
	// K is how many slots a new pool has, over all nodes. The cluster keeps what it has
	// agreed on.
	K int `json:"k,omitempty"`
	// QueueTimeout is the longest wait, default 60 s; negative: no limit.
	QueueTimeout caddy.Duration `json:"queue_timeout,omitempty"`
	// QueueLimit bounds the requests that wait at this node; default 10000.
	QueueLimit int `json:"queue_limit,omitempty"`
	// Fair serves the clients of this node in turn, each with one request at a time. A client
	// that asks at three nodes has three turns.
	Fair bool `json:"fair,omitempty"`
	// ClientLimit bounds how many requests of one client wait, ClientInFlight how many
	// slots it has at a time, at this node.
	ClientLimit    int `json:"client_limit,omitempty"`
	ClientInFlight int `json:"client_in_flight,omitempty"`
	// ClientHeader tells clients apart; without it the client's address does.
	ClientHeader string `json:"client_header,omitempty"`
	// HoldMax is the longest that a request keeps its slot.
	HoldMax caddy.Duration `json:"hold_max,omitempty"`
	// ReclaimHold withholds the slots of a lost node for HoldMax, not only for its lease.
	ReclaimHold bool `json:"reclaim_hold,omitempty"`
}

func (p Pool) config() kgate.Pool {
	return kgate.Pool{
		Name: p.Name, K: p.K, QueueTimeout: time.Duration(p.QueueTimeout), QueueLimit: p.QueueLimit, Fair: p.Fair,
		ClientLimit: p.ClientLimit, ClientInFlight: p.ClientInFlight, ClientHeader: p.ClientHeader,
		HoldMax: time.Duration(p.HoldMax), ReclaimHold: p.ReclaimHold,
	}
}
