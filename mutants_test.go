package kgate

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests find these defects of Transport. Test/library has those of the rest.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-test.timeout=1m"}, Mutants: []mutant.Mutant{
		{
			Name: "a write does not ask the lease", File: "transport.go",
			Old: "now == 0 || now != c.under", New: "now == 0",
			Caught: "bytes have come", By: "^TestTransport$",
		},
		{
			Name: "the connections of x/net's HTTP/2 are shared", File: "transport.go",
			Old: `if base.TLSNextProto["h2"] != nil {`, New: "if false {",
			Caught: "both used the connections", By: "^TestTransportIsApart$",
		},
		{
			Name: "HTTP/1 is spoken where HTTP/2 was agreed on", File: "transport.go",
			Old: `secure.ConnectionState().NegotiatedProtocol == "h2"`, New: "false",
			Caught: "h2: ", By: "^TestTransportDialTLS$",
		},
		{
			Name: "a request goes out under another lease than its slot's", File: "transport.go",
			Old: "\t\t\tif !slot.Valid() {", New: "\t\t\tif false {",
			Caught: "have come with a lost slot", By: "^TestTransportLate$",
		},
		{
			Name: "the end of one request counts as that of the next", File: "transport.go",
			Old: "conn.serves.CompareAndSwap(u, nil)", New: "conn.serves.Store(nil)",
			Caught: "counts as that of the second", By: "^TestTransportHandsOn$",
		},
		{
			Name: "what the system has of a body is sent on", File: "transport.go",
			Old: "_ = tcp.SetLinger(0)", New: "_ = tcp",
			Caught: "not by a reset", By: "^TestTransportResets$",
		},
	}}.Run(t)
}
