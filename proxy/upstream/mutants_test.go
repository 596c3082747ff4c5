package upstream

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests find these defects.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-test.timeout=1m"}, Mutants: []mutant.Mutant{
		{
			Name: "a POST is sent again", File: "client.go",
			Old: "return dead.unseen", New: "return true",
			By: "^TestResend$", Caught: "POST .*sent 2 times",
		},
		{
			Name: "a body is sent again", File: "client.go",
			Old: "|| hasBody(req) && !dead.unseen {", New: "{",
			By: "^TestResend$", Caught: "body:body .*sent 2 times",
		},
		{
			Name: "a body of which HTTP2 has read is sent again", File: "stream.go",
			Old: "unseen: s.upload == nil || !s.upload.touched.Load()", New: "unseen: true",
			By: "^TestNotResent$", Caught: "body: .*after [23] streams",
		},
		{
			Name: "a request whose stream the server has reset is sent again", File: "stream.go",
			Old: "reset.Code == codeRefusedStream", New: "reset.Code != 0",
			By: "^TestNotResent$", Caught: "internal error: .*after 2 streams",
		},
		{
			Name: "a request that a connection does not take is lost", File: "stream.go",
			Old: "http2: client conn not usable", New: "http2: client connection not usable",
			By: "^TestGoingAway$", Caught: "is not unseen",
		},
		{
			Name: "requests go out before the server has said how many it takes", File: "streams.go",
			Old: "f.reads++; f.reads == 2 {", New: "f.reads++; f.reads == 1 {",
			By: "^TestFewStreams$", Caught: "1 connections",
		},
		{
			Name: "a request that has half an answer is sent again", File: "http1.go",
			Old: "reused := h.reused && !h.began", New: "reused := h.reused",
			By: "^TestResend$", Caught: "last:H .*sent 2 times",
		},
		{
			Name: "a request over a new connection is sent again", File: "http1.go",
			Old: "reused := h.reused && !h.began", New: "reused := !h.began",
			By: "^TestResend$", Caught: "first:true .*sent 2 times",
		},
		{
			Name: "a kept connection is not looked at", File: "pool.go",
			Old: "if !h.stale() && !c.expired(h) {", New: "if !c.expired(h) {",
			By: "^TestStale$", Caught: "request 1",
		},
		{
			Name: "an answer that is closed early keeps its connection", File: "http1.go",
			Old: "\t\ta.http1.abandon(a.caller)\n", New: "\t\ta.http1.finish(a.caller, a.closes)\n",
			By: "^TestAbandoned$", Caught: "1 connections are open",
		},
		{
			Name: "a connection is kept that the answer has closed", File: "http1.go",
			Old: "if closes || h.br", New: "if h.br",
			By: "^TestKept$", Caught: "1 connections, want 3",
		},
		{
			Name: "a connection is kept on which the body still comes", File: "http1.go",
			Old: "h.upload != nil && !h.upload.isWhole() || ", New: "",
			By: "^TestEarlyAnswer$", Caught: "stopped false",
		},
		{
			Name: "the answer to HEAD has a body", File: "http1.go",
			Old: "res, err := http.ReadResponse(h.br, req)", New: "res, err := http.ReadResponse(h.br, nil)",
			By: "^TestAnswers$", Caught: "HEAD",
		},
		{
			Name: "1xx is the answer", File: "http1.go",
			Old: "case res.StatusCode < 200:", New: "case res.StatusCode < 101:",
			By: "^TestAnswers$", Caught: "10[23]",
		},
		{
			Name: "a body goes out that the server has not asked for", File: "upload.go",
			Old: "if u.asked == nil {\n\t\treturn true", New: "if true {\n\t\treturn true",
			By: "^TestExpect$", Caught: "got \"hello\"",
		},
		{
			Name: "a body that the server has asked for goes out by chance", File: "upload.go",
			Old: "case <-u.asked: // run", New: "case <-u.done: // run",
			By: "^TestAskedAndAnswered$", Caught: "is not sent",
		},
		{
			Name: "half a body is a whole one", File: "upload.go",
			Old: "\t\tu.http1.raw.reset() // the request", New: "\t\t_ = u.sendTrailer() // the request",
			By: "^TestBodyFails$", Caught: "for whole",
		},
		{
			Name: "the rest of an upload that is broken off is sent", File: "http1.go",
			Old: "context.AfterFunc(ctx, h.raw.reset)", New: "context.AfterFunc(ctx, func() { _ = h.raw.Close() })",
			By: "^TestBrokenOffUpload$/^its_context_ends$", Caught: "connection ends with",
		},
		{
			Name: "the rest of an upload without an end is sent", File: "upload.go",
			Old: "\t\tu.http1.raw.reset() // the request", New: "\t\t_ = u.http1.raw.Close() // the request",
			By: "^TestBrokenOffUpload$/^its_body_fails$", Caught: "connection ends with",
		},
		{
			Name: "TLS says goodbye for as long as it likes", File: "http1.go",
			Old: "time.AfterFunc(goodbyeTimeout, h.raw.reset)", New: "time.AfterFunc(time.Minute, h.raw.reset)",
			By: "^TestGoodbyeUnread$", Caught: "took 5",
		},
		{
			Name: "a server that answers badly is sent the rest of the body", File: "http1.go",
			Old: "\th.raw.reset()\n\th.release(caller)", New: "\t_ = h.raw.Close()\n\th.release(caller)",
			By: "^TestBadAnswerToUpload$", Caught: "does not hear of it",
		},
		{
			Name: "net/http closes what it aborts in order", File: "streams.go",
			Old: "if !f.streams.endsInOrder() {", New: "if false {",
			By: "^TestStreamsAborted$/^it_ends,_before_a_write$", Caught: "does not hear of it",
		},
		{
			Name: "the reset of a stream waits behind what was not sent of it", File: "streams.go",
			Old: "s.InFlight() == 0 && s.socket.IsDelivered()", New: "s.InFlight() == 0",
			By: "^TestStreamsAborted$/^it_takes_no_more_streams$", Caught: "does not hear of it",
		},
		{
			Name: "a trailer is lost", File: "upload.go",
			Old: "range u.req.Trailer", New: "range http.Header(nil)",
			By: "^TestRequest$", Caught: "FAIL",
		},
		{
			Name: "a header has no end", File: "http1.go",
			Old: "h.allowed = int64(h.cfg.MaxHeaderBytes)", New: "h.allowed = -1",
			By: "^TestHeaderTooLarge$", Caught: "200",
		},
		{
			Name: "a connection outlives its standing", File: "pool.go",
			Old: "\t\told.reset()\n", New: "\t\t_ = old\n",
			By: "^TestLapse$", Caught: "FAIL",
		},
		{
			Name: "another protocol begins before the request is whole", File: "http1.go",
			Old: "h.upload != nil && !h.upload.awaitWhole(req.Context())", New: "false",
			By: "^TestSwitchBeforeBody$", Caught: "body sent",
		},
		{
			Name: "a server that has agreed and is gone has the request wait for its body", File: "upload.go",
			Old: "if tcpstate.HasEnded(u.http1.raw.Conn) {", New: "if false {",
			By: "^TestSwitchThenGone$", Caught: "deadline exceeded",
		},
		{
			Name: "a write goes on after the standing", File: "../relay/gate.go",
			Old: "if g.raw == nil {", New: "if true {",
			By: "^TestLapseWithinWrite$", Caught: "the server got 67108864 bytes",
		},
		{
			Name: "an upload goes on after its slot", File: "http1.go",
			Old: "h.raw.sender, _ = caller.(Bounded)", New: "_ = caller",
			By: "^TestSenderEndsWithinUpload$", Caught: "the server got",
		},
		{
			Name: "a handshake that fails is no failure to connect", File: "pool.go",
			Old: "\t\t\t}\n\t\t\treturn failed(err)", New: "\t\t\t}\n\t\t\treturn nil, err",
			By: "^TestDialError$", Caught: "FAIL",
		},
		{
			Name: "an upgrade goes over a shared connection", File: "pool.go",
			Old: "if !upgrade && shared.Begin() {", New: "if shared.Begin() {",
			By: "^TestUpgradeBesideHTTP2$", Caught: "HTTP/2 has no upgrades",
		},
		{
			Name: "an upgrade does not ask for HTTP/1.1", File: "pool.go",
			Old: "\tcase onlyHTTP1:\n", New: "\tcase false:\n",
			By: "^TestUpgradeBesideHTTP2$", Caught: "HTTP/2 has no upgrades",
		},
		{
			Name: "the connection that an upgrade found out with stays busy", File: "pool.go",
			Old: "\t\t\tshared.unused()\n", New: "\t\t\t_ = shared\n",
			By: "^TestUpgradeOnlyHTTP2$", Caught: "0 connections are open",
		},
		{
			Name: "a server that refuses HTTP/1.1 is down", File: "pool.go",
			Old: "if onlyHTTP1 {\n\t\t\t\terr =", New: "if false {\n\t\t\t\terr =",
			By: "^TestUpgradeOnlyHTTP2$/^refuses$", Caught: "an upgrade: upstream: cannot connect",
		},
		{
			Name: "a server that hangs up on HTTP/1.1 is down", File: "pool.go",
			Old: "h.unsure = onlyHTTP1 && protocol == \"\"", New: "h.unsure = false",
			By: "^TestUpgradeOnlyHTTP2$/^(hangs_up|says_HTTP/2)$", Caught: "an upgrade: ",
		},
	}}.Run(t)
}
