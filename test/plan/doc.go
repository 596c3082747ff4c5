// Package plan holds what package lab/plan predicts to what real gateways do.
//
// Three processes of the kgate binary on loopback get requests at random times, as
// a Poisson stream brings them, whether or not earlier ones have been answered.
// The prediction is for the rate and the hold that were measured: that is what an
// operator knows of a running system. How long requests waited is what the
// gateways themselves say (Server-Timing).
//
//	go test -run '^$' -bench . -timeout 30m ./test/plan
package plan
