package admission

import (
	"strings"
	"time"
	"unicode"
)

// Defaults that the configuration file has in common with package kgate or package proxy.
const (
	// DefaultLease of a new cluster.
	DefaultLease = 3 * time.Second
	// DefaultQueueLimit bounds the requests of a pool that wait at one gateway, and
	// DefaultQueueTimeout how long each of them waits.
	DefaultQueueLimit   = 10_000
	DefaultQueueTimeout = time.Minute
	// How upstreams are reached, and when an upstream is passed over. No two of the bounds that
	// end a request are equal, here and in hold.idle, so that the time tells which bound it was.
	DefaultDialTimeout           = 5 * time.Second
	DefaultResponseHeaderTimeout = 75 * time.Second
	DefaultIdleTimeout           = 90 * time.Second
	DefaultResolve               = 30 * time.Second
	DefaultHealthInterval        = 5 * time.Second
	DefaultHealthTimeout         = 2 * time.Second
	DefaultUnhealthyAfter        = 3
	// DefaultTicketTTL is the longest time to live of a pool's tickets.
	DefaultTicketTTL = time.Minute
)

// Bounds of the lease that a cluster begins with: a shorter one leaves raft no time.
const (
	MinLease = 150 * time.Millisecond
	MaxLease = time.Hour
)

// Bounds of a pool's rate, in bytes per second: LeastRate is the smallest one for each slot.
const (
	LeastRate = 1 << 10
	MaxRate   = 1 << 50
)

// Replicas is how many other gateways keep copies of a gateway's tickets.
const Replicas = 2

// Bounds of tickets, the same in the client, in the API and between gateways.
const (
	// MinTTL and MaxTTL bound how long a ticket lives without a sign of its holder, in every
	// pool.
	MinTTL = time.Second
	MaxTTL = 10 * time.Minute
	// MaxNote bounds the note that describes a ticket's holder to people, in bytes.
	MaxNote = 256
)

// MaxNodeName bounds the name of a node, in bytes.
const MaxNodeName = 128

// IsNodeName reports whether s can name a node.
func IsNodeName(s string) bool {
	return s != "" && len(s) <= MaxNodeName && !strings.ContainsFunc(s, unicode.IsControl)
}

// IsPoolName reports whether s can name a pool: a label of metrics, a header's value and
// a part of a path.
func IsPoolName(s string) bool {
	return s != "" && len(s) <= 64 && s != "." && s != ".." &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}
