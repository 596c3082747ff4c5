package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
)

// watch asks again and again until something is done or the time is over. What
// takes longer than two seconds shows on a terminal how far it is.
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

// statusLine is one line on a terminal that is written again and again; elsewhere
// it is nothing.
type statusLine struct {
	out   *os.File
	shown bool
}

func newStatusLine(std streams) *statusLine {
	f, ok := std.err.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &statusLine{}
	}
	return &statusLine{out: f}
}

func (l *statusLine) show(line string) {
	if l.out != nil {
		l.shown = true
		fmt.Fprintf(l.out, "\r\x1b[K%s", line)
	}
}

// end takes the line away.
func (l *statusLine) end() {
	if l.shown {
		l.shown = false
		fmt.Fprint(l.out, "\r\x1b[K")
	}
}
