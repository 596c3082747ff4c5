// Package downstream accepts the connections of clients, over HTTP and TCP, and hands what
// comes over them to a [Handler]. It knows nothing of pools, slots and upstreams.
//
// A request may wait for minutes, so whatever a client can leave open it can leave open for
// long. So a [Server] is net/http's, on connections that promise more:
//
//   - a client that leaves is noticed at once, whatever it has sent behind its request:
//     Linux tells (disconnect.go);
//   - no client holds a connection for ever by half a frame of HTTP/2 (frames.go), half a
//     header, or an answer that it does not read;
//   - there are at most as many connections as are allowed, and those that have sent no whole
//     request, or are kept, make room (limiter.go);
//   - at the end of a server each connection has time for one more request ([Server.Shutdown]);
//   - an answer that comes before the end of the request's body is not lost
//     ([Conn.LingerFor]).
//
// # Layers
//
//	Server       http.Server and its configuration; TCP      server.go, tcp.go
//	listener     accepts, speaks the PROXY protocol          listener.go
//	secureConn   TLS, which net/http does not see            secure.go
//	Conn         a client's connection                       conn.go, hello.go
//	limiter      how many there are, and which make room     limiter.go, newcomers.go, kept.go
//	watch        who has left                                disconnect_linux.go
//
// [Certificates] are those of a server, read again when their files change.
//
// # Sources
//
// RFC 9112, section 9.6 (closing a connection), RFC 9113 (frames), RFC 6066, section 3
// (server names), HAProxy's PROXY protocol.
package downstream
