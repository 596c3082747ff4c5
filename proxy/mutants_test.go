package proxy

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests find these defects, of this package and of those below it.
func TestMutantsAreCaught(t *testing.T) {
	needDisconnectWatch(t)
	mutant.Suite{Args: []string{"-test.timeout=1m"}, Mutants: []mutant.Mutant{
		{
			Name: "a slot is free before its stream is closed", File: "upstream/streams.go",
			Old: "\t\tx.streams.end()\n", New: "\t\tgo x.streams.end()\n",
			By: "^TestHandOff$/^the_client_leaves$", Args: []string{"-test.short"}, Caught: "streams were open at once",
		},
		{
			Name: "one stream too few is counted", File: "upstream/streams.go",
			Old: "s.InFlight() >= s.exchanges-s.unopened", New: "s.InFlight() > s.exchanges-s.unopened",
			By: "^TestHandOff$/^the_client_leaves$", Args: []string{"-test.short"}, Caught: "streams were open at once",
		},
		{
			Name: "who is connected and not accepted is reset at the end", File: "downstream/server.go",
			Old: "\ts.acceptAll(ctx)\n", New: "",
			By: "^TestShutdownServesTheConnected$", Caught: "FAIL",
		},
		{
			Name: "a connection is kept while others wait", File: "answer.go",
			Old: "ex.http1 && ex.conn.IsWanted()", New: "false",
			By: "^TestFullAnswersClose$", Caught: "does not say that the connection is closed",
		},
		{
			Name: "TLS does not say goodbye", File: "downstream/secure.go",
			Old: "return c.client.readHTTP(c.Conn, &c.frames, p)", New: "return c.Conn.Read(p)",
			By: "^TestMaxConnectionsHTTP2$/^TLS$", Caught: "in place of a GOAWAY",
		},
		{
			Name: "TLS ends when a read is interrupted", File: "../internal/deadline/deadline.go",
			Old: "Temporary() bool { return true }", New: "Temporary() bool { return false }",
			By: "^TestMaxConnectionsHTTP2$/^TLS$", Caught: "in place of a GOAWAY",
		},
		{
			Name: "an opaque URL passes all routes", File: "target.go",
			Old: "case u.Opaque != \"\", u", New: "case u",
			By: "^TestTarget$", Caught: "an_opaque_URL",
		},
		{
			Name: "another scheme passes", File: "target.go",
			Old: ", u.Scheme != \"\" && u.Scheme != \"http\" && u.Scheme != \"https\":", New: ":",
			By: "^TestTarget$", Caught: "another_scheme",
		},
		{
			Name: "two hosts in HTTP/2", File: "target.go",
			Old: "case u.Scheme != \"\" && r.ProtoMajor > 1:", New: "case false:",
			By: "^TestTargetInProgram$", Caught: "a host in :path: got",
		},
		{
			Name: "a path may begin with anything", File: "target.go",
			Old: "case u.Path[0] != '/':", New: "case false:",
			By: "^TestTargetInProgram$", Caught: "a path without root: got",
		},
		{
			Name: "any text is a host", File: "target.go",
			Old: `r.Host != "" && hostname(r.Host) == ""`, New: "false",
			By: "^TestHostOfTarget$", Caught: "a.example:80:80 takes the route",
		},
		{
			Name: "dots pass", File: "target.go",
			Old: "case hasDotSegment(u.Path):", New: "case false:",
			By: "^TestTarget$", Caught: "/dots",
		},
		{
			Name: "dots with a parameter pass", File: "target.go",
			Old: " || path[end] == ';' {", New: " {",
			By: "^TestTarget$", Caught: "/a_parameter_behind_dots",
		},
		{
			Name: "an empty path has no route", File: "target.go",
			Old: "if path == \"\" && r.URL.Opaque == \"\" {", New: "if false {",
			By: "^TestTarget$", Caught: "absolute_form_without_path",
		},
		{
			Name: "a byte that must be encoded takes the encodings of others along", File: "target.go",
			Old: "encodeBytes(r.URL.RawPath)", New: "r.URL.RawPath",
			By: "^TestTarget$", Caught: "an_encoded_slash_beside",
		},
		{
			Name: "what is stripped takes the encodings of the rest along", File: "target.go",
			Old: "u.Path, u.RawPath = \"/\"+rest, \"/\"+encoded", New: "u.Path, u.RawPath = \"/\"+rest, \"\"",
			By: "^TestTarget$", Caught: "/stripped",
		},
		{
			Name: "a path begins with an encoded slash", File: "target.go",
			Old: "if rest != \"\" && rest[0] == '/' {", New: "if strings.HasPrefix(encoded, \"/\") {",
			By: "^TestTarget$", Caught: "an_encoded_slash_in_front",
		},
		{
			Name: "a base path takes the encodings along", File: "target.go",
			Old: "if base.RawPath == \"\" && to.RawPath == \"\" {", New: "if true {",
			By: "^TestTarget$", Caught: "below_a_path",
		},
		{
			Name: "what is stripped ends within a segment", File: "target.go",
			Old: "|| rest != \"\" && rest[0] != ';' && !isSlash(rest[0]) && !strings.HasSuffix(prefix, \"/\")", New: "",
			By: "^TestTarget$", Caught: "dots_behind",
		},
		{
			Name: "a stranger takes the place of another URL", File: "browser.go",
			Old: "pool.Name + \"\\x00\" + r.URL.RequestURI()", New: "pool.Name",
			By: "^TestPlaceIsItsOwn$", Caught: "the place counts for another URL",
		},
		{
			Name: "the upstream sees a browser's ticket", File: "browser.go",
			Old: "&& !strings.HasPrefix(cookie, placeCookiePrefix) {", New: "{",
			By: "^TestWaitingPage$", Caught: "the upstream got",
		},
		{
			Name: "a browser loses its place while nobody answers for it", File: "browser.go",
			Old: "\tcase err != nil: // who has the ticket does not answer now\n", New: "\tcase err != nil:\n\t\treturn nil, err\n",
			By: "^TestPlaceIsKept$", Caught: "FAIL",
		},
		{
			Name: "what is loaded ahead has a place in line", File: "browser.go",
			Old: "if isSpeculative(b.r.Header) {", New: "if false {",
			By: "^TestPageIsForPeople$", Caught: "FAIL",
		},
		{
			Name: "weights do not count", File: "backend.go",
			Old: "share := float64(u.weight)", New: "share := 1.0",
			By: "^TestWeights$", Caught: "the upstreams have",
		},
		{
			Name: "a server that comes back has its whole share", File: "balancer.go",
			Old: "\t\tu.since = time.Now()\n\t\tb.logger", New: "\t\tb.logger",
			By: "^TestSlowStart$", Caught: "has come back",
		},
		{
			Name: "priorities of a service do not count", File: "discover.go",
			Old: "\t\t\t\tbehind++\n", New: "",
			By: "^TestService$", Caught: "served by",
		},
		{
			Name: "a failed look-up forgets the servers", File: "discover.go",
			Old: "known: s.known, records: s.records, failing: true", New: "failing: true",
			By: "^TestService$", Caught: "FAIL",
		},
		{
			Name: "a service that is not available keeps its servers", File: "discover.go",
			Old: "len(records) == 0 && !none", New: "len(records) == 0 && (!none || s.known)",
			By: "^TestService$", Caught: "keeps its servers",
		},
		{
			Name: "a write after the lease", File: "upstream/conn.go",
			Old: "if c.current() != c.standing {", New: "if c.current() == ^uint64(0) {",
			By: "^TestSilentWrite$", Caught: "the upstream got \\d+ bytes",
		},
		{
			Name: "a slot that was lost is used", File: "hold.go",
			Old: "return h.slot == nil || h.slot.Valid()", New: "return true",
			By: "^TestLostBeforeUse$", Caught: "FAIL",
		},
		{
			Name: "a slot is free when the header of the answer is there", File: "forward.go",
			Old: "\tex.WriteHeader(res.StatusCode)\n\tif err", New: "\tex.WriteHeader(res.StatusCode)\n\tex.hold.slot.Release()\n\tif err",
			By: "^TestSlotHeldUntilLastByte$", Caught: "FAIL",
		},
		{
			Name: "a stray byte hides that the client leaves", File: "downstream/disconnect_linux.go",
			Old: "\tif c != nil {\n\t\t\t\tc.leave(", New: "\tif c == nil {\n\t\t\t\tc.leave(",
			By: "^TestClientLeaves$/^GET_and_CR,_clear,_closes$", Args: []string{"-test.timeout=3s"}, Caught: "timed out",
		},
		{
			Name: "a body that is there waits for the upstream to ask for it", File: "forward.go",
			Old: "return ex.http1 && ex.conn != nil && tcpstate.HasUnread(ex.conn.NetConn())", New: "return false",
			By: "^TestContinueNotAwaited$", Caught: "the body came after",
		},
		{
			Name: "an idle connection is closed though its client still reads", File: "downstream/conn.go",
			Old: "!tcpstate.IsDelivered(c.raw) &&", New: "false &&",
			By: "^TestSlowReaderKeepsItsAnswer$/shutdown", Caught: "of the answer",
		},
		{
			Name: "a client that reads nothing keeps a server from ending", File: "downstream/conn.go",
			Old: "time.Since(began) < longest && !c.listener.limiter.hasEnded(); {", New: "time.Since(began) < longest; {",
			By: "^TestSilentReaderDelaysNoEnd$", Caught: "does not end",
		},
		{
			Name: "half of a record is no request", File: "downstream/kept.go",
			Old: "f.http1 && c.inRecord", New: "false",
			By: "^TestHalfARecordIsARequest$", Caught: "EOF",
		},
		{
			Name: "an answer is lost when nobody reads the body", File: "downstream/conn.go",
			Old: "\tc.linger()\n", New: "",
			By: "^TestAnswerBeforeBody$", Caught: "connection reset by peer|broken pipe",
		},
		{
			Name: "who notices that clients leave waits for one of their connections", File: "context.go",
			Old: "\t\tgo func() { _ = closer.Close() }()", New: "\t\t_ = closer.Close()",
			By: "^TestLeavingWaitsForNobody$", Caught: "2 slots held and 2 waiting, want 2 and 1",
		},
		{
			Name: "who tells of lost slots waits for one of them", File: "hold.go",
			Old: "func() { go h.abort(errLost) }", New: "func() { h.abort(errLost) }",
			By: "^TestLossWaitsForNobody$", Caught: "it waits",
		},
		{
			Name: "a body that nobody has read is the next request", File: "answer.go",
			Old: "if ex.http1 && (ex.chunked || ex.body.unread()) {", New: "if ex.http1 && ex.chunked {",
			By: "^TestUnreadBodyEndsConnection$", Caught: "FAIL",
		},
		{
			Name: "the client is told twice to go on", File: "answer.go",
			Old: "if status == http.StatusContinue {", New: "if status == 0 {",
			By: "^TestContinueOnce$", Caught: "status 100 after the body",
		},
		{
			Name: "early hints are lost", File: "forward.go",
			Old: "\tex.WriteHeader(status)\n\tclear(h)", New: "\tclear(h)",
			By: "^TestInterim$", Caught: "FAIL",
		},
		{
			Name: "trailers of an answer with a length are lost", File: "forward.go",
			Old: "if announced > 0 && ex.http1 &&", New: "if announced > 0 && !ex.http1 &&",
			By: "^TestAnswerTrailerOfKnownLength$", Caught: "FAIL",
		},
		{
			Name: "a client says who it is", File: "rewrite.go",
			Old: "|| !trusted && hasNamePrefix(name, \"X-Forwarded\")", New: "",
			By: "^TestRequestHeaders$", Caught: "FAIL",
		},
		{
			Name: "a half answer looks whole", File: "forward.go",
			Old: "\t\tpanic(http.ErrAbortHandler) // the client", New: "\t\treturn nil // the client",
			By: "^TestSplice$/^the_upstream_breaks$", Caught: "FAIL",
		},
		{
			Name: "whoever breaks a splice, it is the upstream", File: "splice.go",
			Old: "if !tcpstate.IsEstablished(ex.conn.NetConn()) {", New: "if ex.conn == nil {",
			By: "^TestSplice$", Caught: "record .*Outcome:upstream_error",
		},
		{
			Name: "whoever breaks a splice, it is the client", File: "splice.go",
			Old: "if !tcpstate.IsEstablished(ex.conn.NetConn()) {", New: "if true {",
			By: "^TestSplice$", Caught: "record .*Outcome:admitted",
		},
		{
			Name: "the slot is given back before the upstream is closed", File: "tcp_session.go",
			Old: "	defer slot.Release()\n	se.enter", New: "	slot.Release()\n	se.enter",
			By: "^TestTCPWaits$", Caught: "slots held",
		},
		{
			Name: "a client that leaves the line is not noticed", File: "tcp_session.go",
			Old: "func() { cancel(errLeft) }", New: "func() {}",
			By: "^TestTCPClientLeavesLine$", Caught: "slots held",
		},
		{
			Name: "whoever is refused sees an end in order", File: "downstream/conn.go",
			Old: "tcpstate.ResetOnClose(c.raw, true)", New: "tcpstate.ResetOnClose(c.raw, false)",
			By: "^TestTCPRefused$", Caught: "want a reset",
		},
		{
			Name: "nobody asks before a write", File: "join.go",
			Old: "		return j.tunnel.Check()", New: "		return nil",
			By: "^TestTCPAsleep$", Caught: "FAIL: TestTCPAsleep",
		},
		{
			Name: "the client's end is not passed on", File: "join.go",
			Old: "failed := j.tunnel.CloseWrite()", New: "failed := j.tunnel.Check()",
			By: "^TestTCPSaidAll$", Caught: "i/o timeout",
		},
		{
			Name: "a client may keep the slot after the upstream's end", File: "join.go",
			Old: "client has gone meanwhile\n	_ = j.to.SetReadDeadline(time.Now().Add(endTime))", New: "client has gone meanwhile",
			By: "^TestTCPSilentAfterTheEnd$", Caught: "slots held",
		},
		{
			Name: "what the upstream has sent before its reset is lost", File: "join.go",
			Old: "case !j.broke || j.hold.aborted() != nil:", New: "case true:",
			By: "^TestTCPUpstreamResetsLate$", Caught: "want 102400 and a reset",
		},
		{
			Name: "an answer that was cut short looks whole", File: "join.go",
			Old: "case !j.isWhole():", New: "case false:",
			By: "^TestTCPUpstreamResetsLate$", Caught: "read 102400 bytes, <nil>",
		},
		{
			Name: "the client is blamed for an upstream that is gone", File: "join.go",
			Old: "err = &relay.WriteError{Err: failed}", New: "err = failed",
			By: "^TestTCPUpstreamResetsLate$", Caught: "record",
		},
		{
			Name: "a client on a Unix socket may stall", File: "abort.go",
			Old: "ex.conn.TellsAcked() && ex.http1", New: "ex.http1",
			By: "^TestStalledClients$", Caught: "no record of the request",
		},
		{
			Name: "what the upstream takes does not count", File: "tcp_session.go",
			Old: "	se.hold.looksAt(tunnel.Stream())\n", New: "",
			By: "^TestTCPSlowUpstreamIsNotIdle$", Caught: "record",
		},
		{
			Name: "an upgraded connection is given up before its end has arrived", File: "upstream/tunnel.go",
			Old: "tcpstate.AwaitDelivered(t.raw.Conn, patience, time.Time{})", New: "true",
			By: "^TestUpgradeNotTakenYet$", Caught: "slots held",
		},
		{
			Name: "an upstream that has ended keeps its slot for what it does not take", File: "join.go",
			Old: "j.ended.Load() && !j.tunnel.Drain(j.rest)", New: "j.ended.Load() && !j.tunnel.Drain(time.Hour)",
			By: "^TestUpstreamEndsAndTakesNothing$/^a_little,", Caught: "has not ended",
		},
		{
			Name: "so it does while a write to it waits", File: "join.go",
			Old: "j.ended.Load() && !j.tunnel.Drain(j.rest)", New: "done && j.ended.Load() && !j.tunnel.Drain(j.rest)",
			By: "^TestUpstreamEndsAndTakesNothing$/^more_than", Caught: "has not ended",
		},
		{
			Name: "an upstream that has ended is given up while it is slow", File: "tcpstate/tcpstate.go",
			Old: "last, since = acked, time.Now()", New: "last = acked",
			By: "^TestUpstreamEndsAndTakesNothing$/^slowly", Caught: "the upstream got",
		},
		{
			Name: "an upgraded connection has the time of a header", File: "upstream/http1.go",
			Old: "\t_ = h.raw.reads.Settle(h.raw.Conn) // its", New: "\t// its",
			By: "^TestUpgradeSilentAfterTheEnd$", Caught: "read \"early\"",
		},
		{
			Name: "nor what it takes over HTTP", File: "forward.go",
			Old: "	ex.hold.looksAt(conn)\n", New: "	_ = conn\n",
			By: "^TestSlowUpstreamIsNotIdle$", Caught: "record",
		},
		{
			Name: "a client that has ended its side is forgotten", File: "join.go",
			Old: "return tcpstate.AwaitReset(j.raw)", New: "return nil",
			By: "^Test(TCP|Upgrade)ClientResetsLate$", Caught: "slots held|ends with <nil>",
		},
		{
			Name: "nobody looks at a client while a write to the upstream waits", File: "join.go",
			Old: "\t\tj.below.WatchReset(j)\n", New: "",
			By: "^TestResetBehindFullWay$/^TCP$", Caught: "slots held",
		},
		{
			Name: "the upstream is blamed for a client that has reset its connection", File: "join.go",
			Old: "isTimeout(err) && j.gone.Load()", New: "false",
			By: "^TestResetBehindFullWay$/^TCP$", Caught: "record",
		},
		{
			Name: "a client that has ended its side is not looked at any more", File: "downstream/disconnect_linux.go",
			Old: "unix.EPOLLET", New: "unix.EPOLLONESHOT",
			By: "^TestHalfCloseBeforeReset$", Caught: "has not ended",
		},
		{
			Name: "a client that has ended its side has left", File: "downstream/disconnect_linux.go",
			Old: "c.leave(e.Events&unix.EPOLLERR != 0)", New: "c.leave(true)",
			By: "^TestHalfCloseBeforeReset$", Caught: "the upstream got",
		},
		{
			Name: "a lost slot does not end the connection", File: "tcp_session.go",
			Old: "	se.hold.begin(se.cut)", New: "	se.hold.begin(func(*abortCause) {})",
			By: "^TestTCP(SlotLost|Hold)$", Caught: "connections are open|want a reset",
		},
		{
			Name: "what was read to find the pool is forgotten", File: "join.go",
			Old: "	err := s.Write(j.said)", New: "	err := s.Write(nil)",
			By: "^TestTCPServerName$", Caught: "FAIL: TestTCPServerName",
		},
		{
			Name: "a client says with an underscore what the route says", File: "rewrite.go",
			Old: "strings.IndexByte(name, '_') >= 0 && ex.owns(name)", New: "false",
			By: "^TestHeaderEdits$", Caught: "with underscores: the upstream got",
		},
		{
			Name: "a client says in a trailer what the route says", File: "rewrite.go",
			Old: "|| ex.owns(name) || !httpguts", New: "|| !httpguts",
			By: "^TestHeaderEditsTrailer$", Caught: "the upstream got",
		},
		{
			Name: "what was not announced goes on in a trailer", File: "body.go",
			Old: "return !announced", New: "return false && announced",
			By: "^TestHeaderEditsTrailer$", Caught: "the upstream got",
		},
		{
			Name: "a segment that is only parameters hides a path", File: "target.go",
			Old: "for j+1 < len(prefix) &&", New: "for false &&",
			By: "^TestCutPathPrefix$", Caught: ";a/files/x",
		},
		{
			Name: "any id is taken over", File: "requestid.go",
			Old: "len(values) == 1 && isRequestID(values[0])", New: "len(values) == 1",
			By: "^TestPlaceholdersAreOneLine$", Caught: "the upstream got the id",
		},
		{
			Name: "early hints are edited", File: "answer.go",
			Old: "\tcase status < 200:\n", New: "\tcase status < 200:\n\t\tex.label()\n",
			By: "^TestHeaderEditsOfEveryAnswer$", Caught: "the hints:",
		},
		{
			Name: "a refusal looks like the upstream's answer", File: "answer.go",
			Old: "\tcase ex.rec.UpstreamStatus != 0:\n\t\tex.route.answer", New: "\tcase ex.route != nil:\n\t\tex.route.answer",
			By: "^TestHeaderEditsNotOnOwnAnswers$", Caught: "FAIL",
		},
		{
			Name: "anybody says that the client uses https", File: "client.go",
			Old: "len(proto) == 0 || !contains(s.cfg.TrustedProxies, r.RemoteAddr)", New: "len(proto) == 0",
			By: "^TestHTTPSOnlyStranger$", Caught: "FAIL",
		},
		{
			Name: "who may not takes a place in line", File: "serve.go",
			Old: "\tif ex.denied(r, ex.route.access) {\n\t\treturn\n\t}\n", New: "",
			By: "^TestAccess$", Caught: "want 403",
		},
		{
			Name: "a slow upstream is the client's fault", File: "clientrate.go",
			Old: "p.waiting, p.since = true, now\n", New: "p.waiting = true\n",
			By: "^TestMinDownload$/^a_slow_upstream$", Caught: "record",
		},
		{
			Name: "what buffers take counts as read", File: "tcpstate/tcpstate_linux.go",
			Old: "info.Notsent_bytes > 0", New: "false",
			By: "^TestMinDownloadOnTheWire$/^copied,_fast_false$", Args: []string{"-test.timeout=5s"}, Caught: "timed out",
		},
		{
			Name: "a client's hello has a time-out for ever", File: "downstream/conn.go",
			Old: "\t_, _ = c.reads.Settle(c.Conn), c.writes.Settle(c.Conn)\n", New: "",
			By: "^TestTCPServerNameThenSilence$", Caught: "connection reset",
		},
		{
			Name: "a trusted proxy with a zone is none", File: "downstream/listener.go",
			Old: "ap.Addr().Unmap().WithZone(\"\")", New: "ap.Addr().Unmap()",
			By: "^TestTrustedProxySays$", Caught: "eth0.*got 308",
		},
		{
			Name: "a WebSocket behind a proxy is not over TLS", File: "client.go",
			Old: "strings.EqualFold(first, \"wss\")", New: "false",
			By: "^TestTrustedProxySays$", Caught: "wss.*got 308",
		},
		{
			Name: "a client has the gateway forget the forwarded host", File: "rewrite.go",
			Old: "if len(header[\"X-Forwarded-Host\"]) == 0 {", New: "if len(in.Header[\"X-Forwarded-Host\"]) == 0 {",
			By: "^TestTrustedProxySays$", Caught: "the upstream got",
		},
		{
			Name: "markup in XML comes from a client", File: "errorpage.go",
			Old: "strings.HasSuffix(p.mediaType, \"xml\")", New: "false",
			By: "^TestErrorPageEscapesXML$", Caught: "FAIL",
		},
		{
			Name: "a browser collects cookies without end", File: "browser.go",
			Old: "if b.hasManyPlaces() {", New: "if false {",
			By: "^TestManyPlaces$", Caught: "it has 2 places",
		},
		{
			Name: "a page's script takes the upstream's answer for its place", File: "browser.go",
			Old: "\tb.w.Header().Set(placeHeader, \"1\")\n", New: "",
			By: "^TestWaitingPage$", Caught: "its script gets",
		},
		{
			Name: "a client without a pool may stall", File: "serve.go",
			Old: "\t\tex.hold.limitStalls(ex.stall)\n", New: "",
			By: "^TestStalledClients$", Caught: "no record of the request",
		},
		{
			Name: "an upgraded client may be silent for ever after the end", File: "join.go",
			Old: "client has gone meanwhile\n	_ = j.to.SetReadDeadline(time.Now().Add(endTime))", New: "client has gone",
			By: "^TestUpgradeSilentAfterTheEnd$", Caught: "slots held",
		},
		{
			Name: "a preflight waits in line", File: "serve.go",
			Old: "if ex.route = ex.snapshot.routes.preflight(r); ex.route != nil {", New: "if false {",
			By: "^TestPreflight$", Caught: "FAIL",
		},
		{
			Name: "any page may read refusals", File: "cors.go",
			Old: "\tif !c.allows(origin) {\n\t\treturn false\n\t}\n", New: "",
			By: "^TestCORSOnRefusals$", Caught: "FAIL",
		},
		{
			Name: "a program gets a person's page", File: "errorpage.go",
			Old: "p == nil || !problems.Wants(r.Header, p.mediaType)", New: "p == nil",
			By: "^TestErrorPages$", Caught: "FAIL",
		},
		{
			Name: "a backup is used like the others", File: "balancer.go",
			Old: "best == nil || u.rank < best.rank || load < least", New: "best == nil || load < least",
			By: "^TestBackup$", Caught: "used map",
		},
		{
			Name: "an upgraded connection has a length", File: "upgrade.go",
			Old: "\tdelete(header, \"Content-Length\")", New: "\t",
			By: "^TestUpgrade$", Caught: "Content-Length",
		},
		{
			Name: "a client's upgrades take an upstream out", File: "forward.go",
			Old: "case errors.As(err, &upgrade):", New: "case errors.As(err, &upgrade) && false:",
			By: "^TestUpgradesSpoilNoUpstream$", Caught: "request went to backup",
		},
		{
			Name: "a client is blamed for an upload that the upstream breaks off", File: "forward.go",
			Old: "!ex.stopped.Load() && (", New: "(",
			By: "^TestUpstreamBreaksUploadOff$", Caught: "got 499",
		},
		{
			Name: "an upgrade to a list is all or nothing", File: "protocol.go",
			Old: "return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })", New: "return []string{list}",
			By: "^TestUpgradesSpoilNoUpstream$/^a_list$", Caught: "status 502",
		},
		{
			Name: "an upstream goes on in what nobody has asked for", File: "protocol.go",
			Old: "if !slices.ContainsFunc(may, func", New: "if false && !slices.ContainsFunc(may, func",
			By: "^TestUpgradesSpoilNoUpstream$/^another_protocol$", Caught: "status 101",
		},
		{
			Name: "an upstream goes on in another version", File: "protocol.go",
			Old: "(versionA == \"\" ||", New: "(true ||",
			By: "^TestUpgradesSpoilNoUpstream$/^another_version$", Caught: "status 101",
		},
		{
			Name: "an upgrade goes to an upstream that takes none", File: "backend.go",
			Old: "onlyHTTP2: u.Scheme == \"h2c\"", New: "onlyHTTP2: false",
			By: "^TestUpgradesSpoilNoUpstream$/^h2c$", Caught: "status 502",
		},
		{
			Name: "a name is not looked up again", File: "upstream/pool.go",
			Old: "		c.followLocked()\n", New: "",
			By: "^TestNameFollowed$", Caught: "requests still go to the old address",
		},
	}}.Run(t)
}
