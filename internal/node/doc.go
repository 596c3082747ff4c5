// Package node assembles one gateway out of its parts and runs it. It has no
// listeners for clients or operators, reads only files below its data
// directory, and knows no command line: these belong to the program around it.
//
// # Layers
//
// Each layer owns its parts and calls the layers below it.
//
//	report, control   what operators and metrics see, and what operators change  (report.go, line.go, control.go)
//	Node              start, Reload, Drain, Shutdown, Close; the proxy           (node.go, admit.go)
//	pools             the gateway and its pools' terms                           (pools.go)
//	peers             links, gossip and agreed views                             (peers.go, views.go)
//
// [Start] builds them from the bottom up; Close ends them from the top down.
package node
