package proxy

import (
	"log"
	"log/slog"
	"strings"
)

// stdLog passes what net/http logs on to slog, at level Debug: such lines are
// nearly all about clients that broke off, which the access log tells too, and
// a client must not be able to fill the log.
type stdLog struct {
	logger *slog.Logger
}

// Write implements io.Writer for log.Logger, which calls it once per line.
func (s *stdLog) Write(line []byte) (int, error) {
	s.logger.Debug("net/http", slog.String("text", strings.TrimSpace(string(line))))
	return len(line), nil
}

func (s *stdLog) std() *log.Logger { return log.New(s, "", 0) }
