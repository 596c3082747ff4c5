// Package downstream accepts the connections of clients, over HTTP and TCP, and hands what
// comes over them to a [Handler]. It knows nothing of pools, slots and upstreams.
//
// A request may wait for minutes, so whatever a client can leave open it can leave open for
// long. A [Server] serves HTTP/1 itself, and has net/http serve HTTP/2. It promises that
//
//   - a client that leaves is noticed at once, whatever it has sent behind its request:
//     Linux tells (disconnect.go);
//   - nothing of a request's body is read before the handler asks for it;
//   - no client holds a connection for ever by half a frame of HTTP/2 (frames.go), half a
//     head, or an answer that it does not read;
//   - there are at most as many connections as are allowed, and those that have sent no whole
//     request, or are kept, make room (limiter.go);
//   - at the end of a server each connection has time for one more request ([Server.Shutdown]);
//   - an answer that comes before the end of the request's body is not lost.
//
// # Layers
//
//	Server          its configuration; TCP                     server.go, tcp.go
//	client          requests of HTTP/1, one after the other    client.go
//	h2Conn          a connection of HTTP/2                      http2.go, frames.go
//	answer          what a handler writes, its request's body  answer.go, body.go, context.go
//	listener        accepts, speaks the PROXY protocol         listener.go
//	Conn            a client's connection                      conn.go, hello.go
//	transitions     its states                                 state.go
//	limiter         how many there are, and which make room    limiter.go, newcomers.go, line.go
//	watch           clients that have left                     disconnect_linux.go
//
// [Certificates] are those of a server, read again when their files change.
//
// # Sources
//
// RFC 9112 (HTTP/1.1), RFC 9113 (frames), RFC 6066, section 3
// (server names), HAProxy's PROXY protocol.
package downstream
