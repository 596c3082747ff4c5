//go:build unix

package transport

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests find these defects.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Mutants: []mutant.Mutant{
		{
			Name: "a message that is sent alone is left to the session's goroutine", File: "write.go",
			Old:    "case now && s != nil && s.free():",
			New:    "case false && now:",
			Caught: "is not written", By: "^TestSendNowWrites$",
		},
		{
			Name: "what a sender could not write is forgotten", File: "write.go",
			Old:    "(s.more() || s.socket.keeps())",
			New:    "s.more()",
			Caught: "all messages", By: "^TestSenderDoesNotWait$",
		},
		{
			Name: "a link is up as soon as it is connected", File: "read.go",
			Old:    "\tl.begin(s)\n",
			New:    "\tl.begin(s)\n\tl.mu.Lock()\n\tl.prove(s)\n\tl.mu.Unlock()\n",
			Caught: "down since|no reason why|not within", By: "^TestLongPacketsLost$",
		},
		{
			Name: "an idle link does not look whether long packets pass", File: "beat.go",
			Old:    "s.beats%paddingBeats == 0",
			New:    "s.beats < 0",
			Caught: "not within 10s: the links down", By: "^TestLongPacketsLost$",
		},
		{
			Name: "a sender waits for the other end", File: "read.go",
			Old:    "s.socket = s.raw.unblock()",
			New:    "s.socket = newSocket(s.raw.Conn)",
			Caught: "all sends", By: "^TestSenderDoesNotWait$",
		},
		{
			Name: "a write overtakes what is kept", File: "socket.go",
			Old:    "if len(s.kept) == 0 && !s.flushing {",
			New:    "if !s.flushing {",
			Caught: "bytes arrived, want", By: "^TestSocketKeepsTheRest$",
		},
	}}.Run(t)
}
