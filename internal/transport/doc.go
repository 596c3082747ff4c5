// Package transport carries the messages of the algorithm between gateways,
// and lends its one port to the streams of other packages.
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
// # One port
//
// Every connection to the peer port opens with a preamble (magic, protocol
// version, kind of stream) and is answered with a status. There are links, for
// the algorithm's messages, and several kinds of plain streams, handed out as
// net.Conn: see [StreamKind] and [Transport.Stream]. With [Config.TLS] all of
// them are mutual TLS 1.3, and everybody with a certificate of the configured
// authority is a peer: names and addresses in certificates do not count.
//
// What is not from a peer is refused, counted by [Cause], and logged once per cause and
// minute. A connection must send its preamble within seconds. If too many have not, the
// oldest of them is closed, so that silent connections cannot keep peers out.
//
// # Links
//
// Each pair of members has one link, which one connection serves in both
// directions. The lower node dials; if there is no connection for ten times the
// shortest delay (100 ms), so does the higher one: it is enough that one of the
// two can reach the other. When both dial at once the lower node's connection
// wins. A link that is down is dialled again, after a jittered, growing delay. Both ends
// open with a hello that names the two nodes and the number of the last message received.
//
// A link counts as up when its connection has proved that long packets pass both ways: a
// network may lose only those, and let hellos and pings through. Each end begins with a
// padding, 9 KiB that the other end discards, and a ping behind it; the peer answers after
// its own padding. Messages do not wait for the proof. It is repeated every 48 ping
// intervals.
//
// An end that has received nothing for a ping interval sends a ping. A connection
// on which nothing arrives for 3/2 of it is broken. So the two ends of an idle link
// take turns, and a busy link needs hardly any pings. An end that waits for an
// acknowledgement pings after a quarter of the interval, and gives the connection up
// after one. Pings also give the round-trip estimate.
//
// Each connection has a goroutine that reads, one that writes, and one that hands
// whole payloads on. The writer takes everything that is queued, adds a pending
// acknowledgement, and writes all of it at once: so busy links make few system calls.
// A message that is sent alone ([Transport.SendNow]) is written by its sender, who does
// not wait: what the kernel does not take at once is left to the writer (write.go).
//
// # Payloads
//
// What is too long for a message and may be lost, such as a gateway's report to a pool's
// home, goes over the same link by [Transport.SendPayload], so it also arrives where no
// new connection can be opened. A payload is announced
// with its topic and size (offer), cut into chunks of at most 32 KiB, and ended
// by the receiver (taken) when its Receive has returned. Between two chunks the
// writer takes all messages that are queued. At most 1 MiB of chunks is written
// that the receiver has not confirmed to have read (read), so that no more than
// that lies before a message in the kernel's buffers. A payload belongs to one
// connection and is lost with it; its sender learns that.
//
// From one peer there may be 16 unfinished payloads of together 64 MiB, offered
// and not yet taken; senders keep more waiting, and a peer that offers more
// loses its connection. Memory grows with what arrives, not with what is
// announced.
//
// # On the wire
//
//	preamble  "kgat" version kind 0 0
//	answer    "kgat" version status 0 0
//	hello     from u64, to u64, received u64        (links only; both ways)
//	frame     length u32, then version<<4|type u8, then
//	  message   number, pool (u8 length, bytes), kind u8, epoch, fields by kind;
//	            with 0x80 in kind, a tag (length, bytes)
//	  ack       number of the last message received
//	  ping      id
//	  pong      id of the ping that it answers
//	  offer     number (1, 2, ... on each connection), size, topic (u8 length, bytes)
//	  chunk     number, 1 to 32 KiB of the payload
//	  read      how many bytes of chunks have been read since the last
//	  taken     number, u8: 0 Receive failed, 1 it did not
//	  abandon   number; no more chunks follow
//
// Fixed-size integers are big-endian, all others are unsigned varints in their
// shortest form. The encoding is canonical: the decoder accepts exactly what
// the encoder makes.
package transport
