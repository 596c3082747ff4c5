// Package gateway is the whole of kgate in a Go program: a [kgate.Node] that is a reverse proxy,
// too, with routes, upstreams, TCP pools, a page and an API for operators, metrics and traces.
// `kgate serve` is made of it. A program that only wants slots, for its own handlers, requests or
// jobs, needs package kgate alone; [Admin] and [Collector] also serve its nodes.
package gateway
