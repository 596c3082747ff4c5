package membership

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/kgate/kgate/internal/oncelog"
)

// raftSink brings raft's log into slog. Raft tells its whole life at info and
// repeats its complaints with every heartbeat: here its information is debug,
// and a complaint about the same peer comes once a minute.
type raftSink struct {
	logger *slog.Logger
	once   oncelog.Limit
	// expected reports that raft's complaints are: its streams are cut, or all gateways
	// leave at once.
	expected func() bool
}

var _ hclog.SinkAdapter = (*raftSink)(nil)

func newRaftLogger(expected func() bool, logger *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Output: io.Discard, Level: hclog.Off})
	l.RegisterSink(&raftSink{logger: logger, expected: expected})
	return l
}

// everyday lists the warnings that belong to a cluster's normal life: starting,
// electing and hearing of a leader. What they lead to is logged by this
// package.
var everyday = map[string]bool{
	"heartbeat timeout reached, starting election":                                                                   true,
	"heartbeat timeout reached, not part of a stable configuration or a non-voter, not triggering a leader election": true,
	"Election timeout reached, restarting election":                                                                  true,
	"no known peers, aborting election":                                                                              true,
	"not part of stable configuration, aborting election":                                                            true,
	"rejecting vote request since we have a leader":                                                                  true,
	"rejecting pre-vote request since we have a leader":                                                              true,
	"rejecting pre-vote request since our last term is greater":                                                      true,
	"rejecting pre-vote request since our last index is greater":                                                     true,
	"rejecting vote request since our last term is greater":                                                          true,
	"rejecting vote request since node is not in configuration":                                                      true, // it was restarted
	"rejecting pre-vote request since node is not in configuration":                                                  true,
	"rejecting vote request since our last index is greater":                                                         true,
	"failed to contact":                                        true, // the link is down, or the gateway lost: both are logged
	"failed to heartbeat to":                                   true,
	"failed to appendEntries to":                               true,
	"failed to make requestVote RPC":                           true,
	"peer has newer term, stopping replication":                true,
	"failed to get previous log":                               true,
	"previous log term mis-match":                              true,
	"appendEntries rejected, sending older logs":               true,
	"unable to get address for server, using fallback address": true,
}

func (s *raftSink) Accept(_ string, level hclog.Level, message string, args ...any) {
	if level < hclog.Warn || everyday[message] || s.expected() {
		if s.logger.Enabled(context.Background(), slog.LevelDebug) {
			s.logger.Debug("raft", slog.String("detail", message), slog.String("fields", fields(args)))
		}
		return
	}
	key := message
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "peer", "server-id", "id", "from":
			key += fmt.Sprint(" ", args[i+1])
		default:
		}
	}
	if s.once.First(key) {
		s.logger.Warn("raft", slog.String("detail", message), slog.String("fields", fields(args)))
	}
}

// fields writes raft's key and value pairs as one text: its keys are not ours.
func fields(args []any) string {
	var b strings.Builder
	for i := 0; i+1 < len(args); i += 2 {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%v=%v", args[i], args[i+1])
	}
	return b.String()
}

// causesKept bounds the memory: names come from peers.
const causesKept = 256

// silences tells problems that last from those that pass.
type silences struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// patience is how long a problem must last before it is logged.
const patience = 3 * time.Second

// lasts notes a problem, and reports whether it has lasted.
func (s *silences) lasts(name string) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	since, known := s.since[name]
	if !known {
		if s.since == nil || len(s.since) >= causesKept {
			s.since = make(map[string]time.Time)
		}
		s.since[name] = now
		return false
	}
	return now.Sub(since) >= patience
}

// over forgets a problem.
func (s *silences) over(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, name)
}
