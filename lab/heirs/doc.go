// Package heirs measures how many tickets survive when many gateways are lost at
// once, with the replication and the successors that ship.
//
// A [Fleet] is gateways on the ring (package chordring). Each has a table of
// tickets, waiting and granted, and has pushed it to its p successors until
// they acknowledged all of it (package replication). [Fleet.Lose] takes gateways
// out, all in the same moment; the others report the replicas they have, the
// pool's home settles who takes over what ([replication.PlanHandOvers]), and the successors
// take it into tables of tsuccessors. Then every ticket of every lost gateway is looked
// for.
//
// It has no time and no network: all tickets are synced before the loss, nobody
// is lost during the recovery, and the agreed view that names lost gateways and
// successors is given. A loss of half the gateways may leave no majority to agree on
// such a view; that is not asked here. The question is the paper's: what p
// successors are good for.
package heirs
