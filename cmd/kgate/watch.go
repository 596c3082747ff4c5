package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// watch polls until something is done or the time is over. After two seconds it shows
// the progress on a terminal.
func watch(std streams, timeout time.Duration, ask func() (done bool, state string, err error)) (bool, error) {
	const (
		every = 200 * time.Millisecond
		quiet = 2 * time.Second
	)
	line := newStatusLine(std)
	defer line.end()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for begun := time.Now(); ; <-tick.C {
		done, state, err := ask()
		if done || err != nil {
			return done, err
		}
		if time.Since(begun) > timeout {
			return false, nil
		}
		if time.Since(begun) > quiet {
			line.show(state)
		}
	}
}

// statusLine is one line on a terminal that is overwritten; without a terminal it does
// nothing.
type statusLine struct {
	out   *os.File
	shown bool
}

func newStatusLine(std streams) *statusLine { return &statusLine{out: asTerminal(std.err)} }

// asTerminal returns out if it is a terminal, else nil.
func asTerminal(out io.Writer) *os.File {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

func (l *statusLine) show(line string) {
	if l.out != nil {
		l.shown = true
		fmt.Fprintf(l.out, "\r\x1b[K%s", line)
	}
}

// end removes the line.
func (l *statusLine) end() {
	if l.shown {
		l.shown = false
		fmt.Fprint(l.out, "\r\x1b[K")
	}
}
