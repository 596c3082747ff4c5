package quorum

import (
	"cmp"
	"slices"
	"time"
)

// stamp identifies one request of a node by its Lamport timestamp. It keeps its
// timestamp however often it is sent again.
type stamp struct {
	TS   uint64 // 0: none
	Node int
	// Round counts how often the node has sent the request. A replica repeats the last round that
	// it has seen, so that the node can tell a vote that it has given back from a later vote.
	Round int
	// At is when the node last sent it, by its clock.
	At time.Duration
}

func (r stamp) is(other stamp) bool { return r.TS == other.TS && r.Node == other.Node }

func (r stamp) compare(other stamp) int {
	return cmp.Or(cmp.Compare(r.TS, other.TS), cmp.Compare(r.Node, other.Node))
}

// insert puts a request into a line in order of timestamps, once.
func insert(line []stamp, r stamp) []stamp {
	i, there := slices.BinarySearchFunc(line, r, stamp.compare)
	if there {
		line[i].Round, line[i].At = max(line[i].Round, r.Round), max(line[i].At, r.At)
		return line
	}
	return slices.Insert(line, i, r)
}

func remove(line []stamp, r stamp) []stamp {
	if i, there := slices.BinarySearchFunc(line, r, stamp.compare); there {
		return slices.Delete(line, i, i+1)
	}
	return line
}

type kind uint8

const (
	request kind = iota
	response
	yield
	release
	renew // of the lease
	// End-to-End only.
	winner
	enqueue
	token
	retry
	moved
	end
	drop
	// Of routes that have lost a node.
	clean
)

// names are what messages are counted by. GRANTREQ of the papers' Non-End-to-End
// protocol is its response.
var names = [...]string{"request", "response", "yield", "release", "renew", "winner", "enqueue", "token", "retry", "moved", "end", "drop", "clean"}

// routed tells which kinds go along the overlay's routes; the others go straight
// to their receiver.
var routed = [...]bool{request: true, yield: true, release: true, renew: true, winner: true, drop: true, clean: true}

// message is any message of the protocols.
type message struct {
	kind  kind
	clock uint64 // Lamport's, of those who have sent and forwarded it
	key   key
	// req is the request that is asked for, answered or meant.
	req stamp
	// vote is whom a replica has voted for; sure: the replica itself says so.
	vote stamp
	sure bool
	wait time.Duration // until req's turn, as far as the replica can tell
	// owner is a node, epoch its ownership. In a token it is the anchor.
	owner int
	epoch uint64
	// over is the highest epoch that is known to have ended, high the highest of
	// all.
	over, high uint64
	// line is the token's line, or the partial lines that a release collects.
	line []stamp
	// renewed is, in a token, when an owner last told the replicas.
	renewed time.Duration
	// passed: an owner has passed this on to its successor.
	passed bool
	hops   int
}
