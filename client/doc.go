// Package client holds slots of kgate's pools without a connection: it asks any
// gateway for a ticket, waits in the one line of the pool, and keeps the slot
// until it is released.
//
// # What it promises
//
// At most k slots of a pool are held at a time, over all clients and all
// requests that the gateways proxy. A slot is held for as long as its holder
// renews it, which a [Slot] does in the background. When it cannot, or the slot
// is taken away, [Slot.Lost] is closed before the gateways give the slot to
// somebody else: the time to live counts from when a renewal was sent, less a
// tenth for clocks whose rates differ, on the monotonic clock. Lost is closed
// [Slot.Grace] before that, so that there is time to stop. What a holder does after
// that is no longer covered. A machine that sleeps stops that clock on some systems; where even
// that must do no harm, let the resource look at the fence ([Slot.Fence]).
//
// A ticket and a slot outlive the gateway that gave them: the client goes on at
// the next address of [Config.Admins].
//
// An answer that is lost on its way may leave a ticket that nobody knows of. It
// ends, in line or with a slot, when its time to live is over.
//
// # Model
//
// RequestTicket puts a [Ticket] in line, its Wait waits there, Redeem turns it into a [Slot],
// Release gives that back. Acquire and TryAcquire are all of it in one call.
//
// # Source
//
// The cycle is that of S. L. Hernane, J. Gustedt, M. Benyettou, "Data handover on
// a peer-to-peer system", INRIA RR-8690, 2015.
//
//	paper             here
//	dho_ew_request    Client.RequestTicket
//	dho_test          Ticket.Renew
//	dho_ew_acquire    Ticket.Wait, Ticket.Redeem
//	dho_ew_release    Slot.Release
package client
