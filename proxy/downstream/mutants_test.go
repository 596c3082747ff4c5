package downstream

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests of package proxy find more of them.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Mutants: []mutant.Mutant{
		{
			Name: "a wildcard comes before the name", File: "certificate.go",
			Old: "[]string{name, \"*.\" + parent}", New: "[]string{\"*.\" + parent, name}",
			By: "^TestCertificatesByName$", Caught: "FAIL",
		},
		{
			Name: "a header that is continued has no time", File: "frames.go",
			Old: "f.block = !last", New: "f.block = false",
			By: "^TestFrameTimer$", Caught: "incomplete behind",
		},
		{
			Name: "an HTTP/2 connection is idle before its first request", File: "limiter.go",
			Old: "if !first {", New: "if !first || true {",
			By: "^TestFirstRequestHasTime$", Caught: "before its first request",
		},
		{
			Name: "a connection is asked to leave as soon as it is idle", File: "limiter.go",
			Old: "left > 0", New: "left > keptFor",
			By: "^TestIdleMakeRoom$", Caught: "has just become idle",
		},
		{
			Name: "all that are idle are asked to leave", File: "limiter.go",
			Old: "c.leaving < int(c.waiting.Load())+min(c.idle.Len()/oneIn, most)", New: "oneIn < most",
			By: "^TestIdleMakeRoom$", Caught: "asked to leave: true, true",
		},
		{
			Name: "one that was asked to leave does not learn that it may stay", File: "limiter.go",
			Old: "\t\te.conn.askToStay()\n", New: "",
			By: "^TestIdleMakeRoom$", Caught: "one has a request",
		},
		{
			Name: "the first byte of a request does not keep its connection", File: "kept.go",
			Old: "\t\tc.listener.limiter.heard(&c.entry)\n\t\t_ = c", New: "\t\t_ = c",
			By: "^TestAskedToLeave$", Caught: "a_byte_has_come",
		},
		{
			Name: "what the kernel has is lost", File: "kept.go",
			Old: "time.Now().Add(lastCall)", New: "time.Unix(1, 0)",
			By: "^TestAskedToLeave$", Caught: "after 0s",
		},
		{
			Name: "an HTTP/2 connection ends without a GOAWAY", File: "kept.go",
			Old: "f.injected, f.ends = goodbye, time.Now()", New: "f.ends = time.Now()",
			By: "^TestAskedToLeave$", Caught: "HTTP/2",
		},
		{
			Name: "a frame that crosses the GOAWAY keeps the connection open", File: "frames.go",
			Old: "conn.SetReadDeadline(f.ends)", New: "conn.SetReadDeadline(time.Time{})",
			By: "^TestAskedToLeave$", Caught: "a_frame_crosses",
		},
		{
			Name: "a request before the GOAWAY is lost", File: "kept.go",
			Old: "f.ends = (time.Time{}); c.entry.kept.Load()", New: "f.ends = (time.Time{}); true",
			By: "^TestRequestBeforeGoodbye$", Caught: "EOF",
		},
	}}.Run(t)
}
