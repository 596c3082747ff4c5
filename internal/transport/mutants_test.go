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
			Name: "what a sender could not write is forgotten", File: "write.go",
			Old:    "(s.more() || s.socket.keeps())",
			New:    "s.more()",
			Caught: "all messages", By: "^TestSenderDoesNotWait$",
		},
		{
			Name: "a sender waits for the other end", File: "session.go",
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
