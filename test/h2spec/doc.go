// Package h2spec runs the conformance tests of h2spec (RFC 7540, RFC 7541) against
// the gateway and against net/http alone, whose HTTP/2 server the gateway uses, and
// wants no more failures of the gateway.
//
// It is a module of its own, so that nobody who uses kgate gets h2spec's
// dependencies.
package h2spec
