package kgate

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests find these defects of Transport. Test/library has those of the rest.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-test.timeout=1m"}, Mutants: []mutant.Mutant{
		{
			Name: "a write does not ask the lease", File: "fence.go",
			Old: "now == 0 || now != c.under", New: "now == 0",
			Caught: "bytes have come", By: "^TestTransport$",
		},
		{
			Name: "a write that waits does not ask the lease again", File: "fence.go",
			Old: "c.writes.Write(p)", New: "c.Conn.Write(p)",
			Caught: "the server got 67108864 bytes", By: "^TestTransportWithinWrite$",
		},
		{
			Name: "the connections of x/net's HTTP/2 are shared", File: "http2.go",
			Old: "base.TLSNextProto[name] = f.take", New: "_ = f.take",
			Caught: "both used the connections", By: "^TestTransportIsApart$",
		},
		{
			Name: "HTTP/1 is spoken where HTTP/2 was agreed on", File: "fence.go",
			Old: `err == nil && secure.ConnectionState().NegotiatedProtocol == "h2"`, New: "false",
			Caught: "h2: ", By: "^TestTransportDialTLS$",
		},
		{
			Name: "a request goes out under another lease than its slot's", File: "transport.go",
			Old: "\t\t\tif slot.Valid() {", New: "\t\t\tif true {",
			Caught: "have come with a lost slot", By: "^TestTransportLate$",
		},
		{
			Name: "a lost slot ends the other requests of its connection", File: "transport.go",
			Old: "!conn.shared {", New: "true {",
			Caught: "another request on the connection reads", By: "^TestTransportSharedConnection$",
		},
		{
			Name: "HTTP/2 does not hear of a lost slot", File: "transport.go",
			Old: "\t\t\tcancel(ErrLost)\n", New: "",
			Caught: "with a lost slot", By: "^TestTransportSharedConnection$",
		},
		{
			Name: "the end of an upgraded connection waits behind what was not sent", File: "fence.go",
			Old: "if c.IsDelivered() {", New: "if true {",
			Caught: "does not hear of it", By: "^TestTransportUpgrade$",
		},
		{
			Name: "an upgraded connection outlives its slot", File: "transport.go",
			Old: "detach: slot.held.Attach(conn.closeDelivered)", New: "detach: func() {}",
			Caught: "does not hear of it", By: "^TestTransportUpgrade$",
		},
		{
			Name: "the end of one request counts as that of the next", File: "fence.go",
			Old: "conn.serves.CompareAndSwap(u, nil)", New: "conn.serves.Store(nil)",
			Caught: "counts as that of the second", By: "^TestTransportHandsOn$",
		},
		{
			Name: "what the system has of a body is sent on", File: "fence.go",
			Old: "tcpstate.ResetOnClose(c.socket(), true)", New: "tcpstate.ResetOnClose(c.socket(), false)",
			Caught: "not by a reset", By: "^TestTransportResets$",
		},
		{
			Name: "the reset of a stream is not waited for", File: "proxy/upstream/streams.go",
			Old: "\t\tx.streams.end()\n", New: "\t\tgo x.streams.end()\n",
			Caught: "were open at once", By: "^TestTransportStreams$",
		},
		{
			Name: "an answer without a body counts until it is closed", File: "proxy/upstream/streams.go",
			Old: "if isEmpty(res.Body) &&", New: "if res.Body == http.NoBody &&",
			Caught: "after HEAD, .* were open at once", By: "^TestTransportNeverClosed$",
		},
		{
			Name: "a stream is opened under the lease before", File: "http2.go",
			Old: "case other.below.under != under:", New: "case under == 0:",
			Caught: "under the next lease: ", By: "^TestTransportStreams$",
		},
		{
			Name: "net/http waits for the client of an upload", File: "transport.go",
			Old: "r.Body = under.upload", New: "_ = under.upload",
			Caught: "after [56]", By: "^TestTransportStuckUpload$",
		},
		{
			Name: "the upload of a connection that is closed goes on", File: "fence.go",
			Old: "\t\t\tu.upload.stop()\n", New: "",
			Caught: "after 6", By: "^TestTransportStuckUpload$/^HTTP/1,_broken$",
		},
		{
			Name: "the upload of a request that is over goes on", File: "proxy/upstream/streams.go",
			Old: "\t\t\tx.stop()\n", New: "",
			Caught: "after 5", By: "^TestTransportStuckUpload$/^HTTP/2,_answered$",
		},
		{
			Name: "a server that takes no requests is asked again and again", File: "http2.go",
			Old: "if other.isNew() {\n\t\t\t\terr", New: "if false {\n\t\t\t\terr",
			Caught: "FAIL", By: "^TestTransportFewStreams$/^none$",
		},
		{
			Name: "connections for one request serve others", File: "http2.go",
			Old: "= base.DisableKeepAlives, false", New: "= false, false",
			Caught: "connections for", By: "^TestTransportFewStreams$/^for_one_request_only$",
		},
		{
			Name: "the context of an answer that is not closed is kept", File: "transport.go",
			Old: "\t\tb.under.over()\n\t\tb.cancel(nil)\n", New: "\t\tb.under.over()\n",
			Caught: "contexts are kept", By: "^TestTransportKeepsNothing$",
		},
		{
			Name: "hosts are kept for ever", File: "http2.go",
			Old: "\t\tdelete(h.conns, h)\n", New: "",
			Caught: "hosts are kept", By: "^TestTransportKeepsNothing$",
		},
		{
			Name: "the connection of an answer with status 101 that nobody asked for stays open", File: "transport.go",
			Old: "if conn := b.under.Load(); conn != nil {", New: "if conn := b.under.Load(); conn != nil && conn.shared {",
			Caught: "is open", By: "^TestTransportSwitchesUnasked$",
		},
	}}.Run(t)
}
