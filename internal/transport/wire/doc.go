// Package wire is the connection between two gateways without its socket: bytes and times
// in, bytes and events out. Package transport drives it with TCP and TLS, the laboratory
// with simulated wires.
//
// # What it carries
//
// Each pair of processes has one connection. On it go, in the order in which [Conn.Fill]
// writes them:
//
//	urgent     what the connection itself says; raft's frames
//	normal     gossip's packets, calls, answers
//	messages   of pools, between two incarnations: see [Link]
//	data       the rest of long calls and answers
//
// A frame has 32 KiB at most, and one frame of data follows the others at a time. So what is
// urgent waits for one frame at most, and for what the kernel has taken already: at most
// a window of data and one of messages are written that the other end has not read. See [window]
// for how large that is.
//
// # What becomes of it
//
// [Conn.Send] is for what may be lost: its error says that the frame was dropped, and the end
// of a connection that others may have been. A [Conn.Call] gets one answer, or ends with the
// connection; then nobody knows whether it was carried out. A [Link] loses nothing and
// repeats nothing, over any number of connections, while both incarnations live.
//
// # Bounds
//
// What the other end can make this one keep is bounded: maxShort calls of up to one frame,
// maxLong longer ones of maxBody bytes together, one message and one frame of each channel that are incomplete. Memory grows with what
// arrives, not with what is announced. An end that exceeds a bound, or says what makes no sense,
// loses the connection. A stranger may send few bytes, but for one longer call at a time, and
// one answer may be long that waits for it.
//
// # Life
//
// See [Pair] for how a connection begins and which one lives if there are two, and [Conn.Tick]
// for how it ends.
//
// # Format
//
//	frame     length u16, then type u8, then
//	  message   bytes                         0x80 in the type: the next message goes on
//	  datagram  channel u8, bytes             with these bytes, or the next datagram of
//	                                          the channel
//	  call      id, name (u8 length, bytes), size of the body, the body if it fits
//	  data      id, bytes of a call's body or of an answer
//	  answer    id, status u8, size, the answer if it fits
//	  cancel    id
//	  credit    how many bytes of data have been read
//	  ping      id
//	  pong      id of the ping that it answers
//	  link      the sender's node, the other end's, numbers of the last message received
//	            and of the last one sent
//	  ack       number of the last message received
//	  padding   bytes
//
// Fixed-size integers are big-endian, all others are unsigned varints in their shortest form.
// The end that dialled counts its calls 1, 3, 5, ..., the other one 2, 4, 6, ...
package wire
