package cluster

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
)

// maxLines of a log are kept, the newest.
const maxLines = 20_000

// Log keeps what a process logs, line by line. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	rest  []byte // a line that is not complete yet
	lines []string
	added chan struct{} // closed at the next line
}

func newLog() *Log { return &Log{added: make(chan struct{})} }

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			break
		}
		l.lines = append(l.lines, string(l.rest[:i]))
		l.rest = append(l.rest[:0], l.rest[i+1:]...)
	}
	if n := len(l.lines); n > 2*maxLines {
		l.lines = append([]string(nil), l.lines[n-maxLines:]...)
	}
	close(l.added)
	l.added = make(chan struct{})
	return len(p), nil
}

// Lines returns the lines so far, and a channel that is closed when there is
// more.
func (l *Log) Lines() (lines []string, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...), l.added
}

// Tail returns the last n lines, and what has been written of the next.
func (l *Log) Tail(n int) string {
	lines, _ := l.Lines()
	l.mu.Lock()
	rest := string(l.rest)
	l.mu.Unlock()
	if rest != "" {
		lines = append(lines, rest)
	}
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}

// Record is one line of a log in JSON.
type Record map[string]any

// Text returns the attribute of that name, if it is text.
func (r Record) Text(name string) string {
	s, _ := r[name].(string)
	return s
}

// all returns the lines.
func (l *Log) all() []Record {
	lines, _ := l.Lines()
	var out []Record
	for _, line := range lines {
		var r Record
		if json.Unmarshal([]byte(line), &r) == nil {
			out = append(out, r)
		}
	}
	return out
}

// Records returns the lines with that message.
func (l *Log) Records(message string) []Record {
	return slices.DeleteFunc(l.all(), func(r Record) bool { return r.Text("msg") != message })
}

// Stray returns the first line that is not in JSON, if there is one: of serf, raft
// or the runtime, past the log that the process is told to write.
func (l *Log) Stray() (line string, found bool) {
	lines, _ := l.Lines()
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			return line, true
		}
	}
	return "", false
}
