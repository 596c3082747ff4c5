// Package relay copies bytes from one socket to another, and asks before each write
// whether it is still allowed.
//
// io.Copy would do between two TCP connections: it has the kernel move the bytes
// (splice). But it may wait for minutes between looking at anything and the write that
// follows, and a gateway that was stopped meanwhile may write nothing. So on Linux the
// two halves of a splice are made here, with the question between them. The first bytes
// go through a buffer in the same way: most connections have few. Everywhere else, and
// for a source that is no socket, all of them go through a buffer.
package relay
