// Package clusterkey makes all that gateways need to trust each other out of
// one shared secret: for each gateway a certificate under its own name.
//
// A [Ring] is what a key file holds: the first key is the one in use, and every
// key is accepted. So a key is replaced without an outage: add the new one as
// the second line on every gateway, then make it the first, then remove the old.
//
// # What it promises
//
// Whoever does not have a key cannot open a connection to a peer port. Whoever has one can take part under any name: the key is the whole
// cluster's. Where gateways must not be able to take each other's names, use
// certificates of an authority that none of them has.
//
// # How it works
//
// HKDF-SHA256 (RFC 5869) derives from each key the seed of an Ed25519 authority. The
// authority's certificate has fixed contents and Ed25519 signatures are
// deterministic, so all gateways make the same one. A gateway signs a
// certificate for a key of its own, which never leaves the process.
//
// The certificates do not expire: their key is in the hands of whoever could
// renew them. What ends them is a new cluster key. Clocks therefore do not
// matter.
package clusterkey
