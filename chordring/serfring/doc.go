// Package serfring finds the other gateways: it wraps a serf agent (SWIM
// gossip with Lifeguard's refinements) and yields who is there, under which
// address and with which boot.
//
// What it says is never agreed upon. [StatusFailed] is a suspicion: the
// gateway may be slow, paused or cut off, and it may well be serving requests.
// What gateways act upon is the agreed view, which package membership makes
// out of these observations. A process that was stopped for a while sees no
// event about itself after it wakes, and an isolated one sees all the others
// fail: fencing is nobody's business here.
//
// # On the connection of processes
//
// Gossip has no port and no key of its own: a [Carrier] puts memberlist's packets on the
// connections of package transport, where each end has proved its name. So a gateway that is known
// by gossip alone is heard only once it has done that, and its address in gossip, that of its peer
// port, counts only while it has not said another one itself.
//
// # Joining
//
// A gateway asks every address of its join list until each has answered or
// belongs to a living gateway. To stop at the first answer would leave islands:
// of five gateways that start together, each told of the next one, the first
// two meet and ask nobody any more. After that the list is asked again about
// twice a minute, for ever, with jitter.
//
// # Incarnations
//
// A gateway that restarts at the same address before its loss was noticed
// causes no event by itself. Therefore each start of a process carries a random
// boot id in its tags; a change of it is what others see of such a restart.
//
// # Names
//
// A name belongs to one gateway at a time. Serf's own resolution of a conflict
// is a vote in which a small cluster may shut down both sides. Here a newcomer
// whose name is in use is refused while joining, by itself and by the gateway
// it asked; the gateway that has the name is not disturbed. The newcomer keeps
// trying: if the other one was only the ghost of its own last run, that is
// noticed in about a second, and the join succeeds.
//
// # Timing
//
// Probes every 200 ms with 100 ms to answer notice a lost process in about a
// second. Shorter ones yield false suspicions on busy machines.
//
// Source: Das, Gupta, Motivala, "SWIM", DSN 2002; Dadgar, Phillips, Currey,
// "Lifeguard", 2018; github.com/hashicorp/serf.
package serfring
