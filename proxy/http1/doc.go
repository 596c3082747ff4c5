// Package http1 reads and writes the messages of HTTP/1.1 (RFC 9112). It has no connections,
// clocks or goroutines, and does not use net/http.
//
// It promises that
//
//   - a head is taken only if it has the one form that no two readers read differently. What
//     is not grammar is refused by name ([Rule]), never repaired: a line that does not end in
//     CR LF, a folded line, a space before a colon, control characters, a second Host;
//   - where a body ends is decided in one place for both directions ([Head.RequestFraming],
//     [Head.ResponseFraming]), and refused where two readers could decide differently;
//   - what was scanned is not scanned again when more bytes come, and a head that is read in
//     place costs no allocation;
//   - what is written is one message: a field that would be read as something else is an
//     error, and framing is written from a [Framing], never copied.
//
// A caller reads so:
//
//	in := http1.NewInput(conn, limits.Bytes)
//	for {
//		n, err := head.Request(in.Buffered(), limits) // n is 0 while it is not whole
//		...
//		in.Fill()
//	}
//	framing, err := head.RequestFraming()
//	err = request.Fill(&head, framing)                // copies the head
//	head.Reset()
//	in.Discard(n)
//	in.Release()
//	body.Reset(in, framing, limits)
//	...                                               // and reads body to its end
//
// # Files
//
//	rule.go     what is refused, by name, and with which status
//	name.go     names of fields that a proxy knows
//	grammar.go  what may stand in a token, a value, a target, a host
//	head.go     heads of requests and of answers, read in place
//	fields.go   fields apart from the bytes of a head
//	request.go  requests apart from them
//	framing.go  where a body ends
//	input.go    what a connection has read
//	body.go     bodies: of known length, in chunks, until the end
//	write.go    heads and chunks, written anew
//
// # Stricter than the RFC demands
//
// Where RFC 9112 lets a recipient be lenient, or repair, this package refuses: bare LF (2.2),
// empty lines in front of a request (2.2), folded lines in answers (5.2), Content-Length beside
// Transfer-Encoding (6.3), more than one Content-Length though equal (RFC 9110, 8.6), or one
// with leading zeros, codings other than chunked, Transfer-Encoding in HTTP/1.0 (6.1), white
// space in the line of a chunk (7.1.1), an absolute target whose host is not that of Host
// (3.2.2), versions other than 1.0 and 1.1. It is more lenient in one thing: an answer's status
// line may end behind the status (4).
package http1
