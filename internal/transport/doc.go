// Package transport carries everything that gateways say to each other, on one port.
//
// # Promise
//
// Between two incarnations that both live, messages are delivered in the order
// of [Transport.Send], each exactly once, whatever happens to the TCP
// connections below: a message carries a number, stays with its sender until
// the receiver has acknowledged it, and is sent again after a reconnect unless
// the receiver says that it has it. So a broken connection never loses a token
// and never doubles one. Send never blocks; its queues are bounded in messages
// and bytes.
//
// The promise ends with an incarnation: the unacknowledged messages of a peer that
// [Transport.SetPeers] drops are gone with it. A new epoch repairs what they leave.
//
// # One connection
//
// Each pair of processes has one connection, whatever goes between them: see package wire for
// its frames, what goes before what, and which connection lives if there are two. A process is
// known by its gateway's name; one that is started again takes the place of the one before. Over
// it go
//
//   - links, between the incarnations that both processes are in the agreed view: messages
//     ([Transport.Send]) and payloads ([Transport.SendPayload]);
//   - calls ([Transport.Call]) between processes, members or not; and datagrams that may be lost
//     ([Transport.SendDatagram]): raft's, gossip's, and what is told of tickets.
//
// A connection is dialled while a view has the other gateway, or a call waits for it,
// and for half a minute after a call or a datagram. The gateway with the lower name
// dials; if there is no connection for ten times the shortest delay (100 ms), so does the other
// one: it is enough that one of the two can reach the other. A connection that is lost is dialled again, after a jittered, growing delay.
//
// Each connection has a goroutine that reads and another that writes. The writer takes what is
// queued and writes all of it at once: so busy connections make few system calls. A message
// that is sent alone ([Transport.SendNow]) is written by its sender, who does not wait: what the
// kernel does not take at once is left to the writer (session.go). Messages are delivered by the
// goroutine that reads, or by the one that read before it (deliver.go); payloads, and answers to
// calls, by others.
//
// A link counts as up when both ends serve it and its connection has proved that long packets
// pass both ways: a network may lose only those.
//
// # One port
//
// Every connection to the peer port opens with a preamble (magic, protocol version, kind) and is
// answered with a status; the hellos of two processes follow. With [Config.TLS] it is mutual TLS 1.3.
// A process may say only a name that its certificate has. Addresses do not count.
//
// Where a name is not known yet, [Transport.Meet] asks who is there. Two processes of one name
// do not take each other's connections: the first one keeps it, unless the view has the other one's address.
//
// What is not from a peer is refused, counted by [Cause], and logged once per cause and
// minute. A connection must send its preamble within seconds. If too many have not, the
// oldest of the address with most of them is closed, so that one address's silent connections
// cannot keep peers out. Many addresses can, if they open more than there is room for in the round
// trips that a peer's beginning takes.
//
// # On the wire
//
//	preamble  "kgat" version kind 0 0
//	answer    "kgat" version status 0 0
//	hello     see wire.Hello; behind the preamble and behind the answer
//	frames    see package wire
//	message   pool (u8 length, bytes), kind u8, epoch, fields by kind;
//	          with 0x80 in kind, a tag (length, bytes)
//
// Integers in a message are unsigned varints in their shortest form. The encoding is canonical:
// the decoder accepts exactly what the encoder makes.
package transport
