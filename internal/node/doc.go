// Package node assembles one gateway out of its parts and runs it. It has no
// listeners for clients or operators, reads no files but those below its data
// directory, and knows no command line: the program around it has those.
//
// # Layers
//
// Each layer owns what it names and calls those below it. The report also asks the Node
// whether it is ready and drained.
//
//	Node         start, Reload, Drain, Shutdown, Close
//	report       what operators and metrics see     (report.go, line.go, control.go)
//	dataPlane    the proxy, and who is admitted     (admit.go)
//	pools        the gateway and its pools' terms   (pools.go)
//	peers        links, gossip and agreed views     (peers.go, views.go)
//
// [Start] builds them from the bottom up; Close ends them from the top down.
package node
