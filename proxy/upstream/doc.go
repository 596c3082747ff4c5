// Package upstream keeps a gateway's connections to one server and makes requests
// over them. It differs from net/http's Transport where a promise about
// connections depends on it:
//
//   - An exchange ends when the server has nothing more to do with it. When
//     RoundTrip fails, or Close of the answer's body returns, the answer has been
//     read to its end, or the connection is closed, or, with HTTP/2, the stream is
//     closed on the wire: both sides have ended it or one has reset it.
//   - The right to send is checked right before each write to a socket
//     (Config.Standing). A connection belongs to the standing under which it was
//     made. It sends nothing under another one.
//   - A connection carries an HTTP/1.1 request alone. No request pays for what
//     became of the one before.
//   - Dialling includes the TLS handshake. Its failure is a DialError: nothing of
//     the request was sent, and it may go to another server.
//
// # HTTP/1.1
//
// The request is written and the answer read on the caller's goroutine
// (http1.go). A second goroutine sends the request's body, if there is one
// (upload.go), so that an early answer is seen at once. Package http1 reads the
// answer: what two readers could read in two ways is refused.
//
// A kept connection is read from right before a request is written to it: one that the
// server has closed, or on which it has said something unasked, is dropped. A server may
// still close it at the same moment. Then a GET, HEAD, OPTIONS or TRACE without a
// body is sent once more, over a new connection (RFC 9110, section 9.2.2); every
// other request fails, since the server may have acted on it. So does one whose time
// is over, or whose connection this side has closed: the server may be at work on it.
//
// HTTP/1.1 does not say which request an answer is for. What comes before the server's
// system has the request is none. What comes before the request is whole may be one
// for another, so that its connection is not kept.
//
// # HTTP/2
//
// Streams are net/http's (http.ClientConn); package upstream counts them, and lets an
// exchange end only when its stream is out of that count. What is written is
// checked below it, as with HTTP/1.1.
//
// A request that the server says it has not looked at is sent once more, unless it has
// begun to answer it. So is one that HTTP/1.1 would send once more, if nothing of any
// stream was read while it was in flight.
package upstream
