// Package bar shows on a terminal how far long work has come.
package bar

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Bar is one line on a terminal that is overwritten; elsewhere it shows nothing. Its methods
// are safe for concurrent use.
type Bar struct {
	out   io.Writer // nil: no terminal
	mu    sync.Mutex
	what  string
	begun time.Time
	last  time.Time
}

// New returns a bar on out.
func New(out io.Writer) *Bar {
	if f, ok := out.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		out = nil
	}
	return &Bar{out: out}
}

// Update says that so many of the parts of some work are done. Other work than before starts
// a new bar.
func (b *Bar) Update(what string, done, total int) {
	const every, width = 100 * time.Millisecond, 30
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if what != b.what {
		b.what, b.begun, b.last = what, now, time.Time{}
	}
	if b.out == nil || now.Sub(b.last) < every {
		return
	}
	b.last = now
	full := width * done / max(total, 1)
	left := time.Duration(float64(now.Sub(b.begun)) / float64(max(done, 1)) * float64(total-done)).Round(time.Second)
	fmt.Fprintf(b.out, "\r\x1b[K%s  %s%s  %d/%d, %v left", what, strings.Repeat("█", full), strings.Repeat("░", width-full), done, total, left)
}

// Close removes the bar.
func (b *Bar) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out != nil && !b.last.IsZero() {
		b.last = time.Time{}
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}
