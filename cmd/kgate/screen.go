package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen shows something repeatedly.
type screen struct {
	out      io.Writer
	terminal bool
	colour   bool
	last     string // the last text drawn without an error
	drawn    bool
	size     func() (width, height int)
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, size: func() (int, int) { return plainWidth, 0 }}
	if f := asTerminal(out); f != nil {
		s.terminal = true
		s.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		s.size = func() (int, int) {
			if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
				return w, h
			}
			return plainWidth, 0
		}
	}
	return s
}

// plainWidth is its width if there is no terminal.
const plainWidth = 80

// Control sequences of terminals.
const (
	openScreen  = "\x1b[?1049h\x1b[?25l" // the alternate screen, without the cursor
	closeScreen = "\x1b[?25h\x1b[?1049l"
	toBegin     = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// open takes the whole terminal, until the returned function is called.
func (s *screen) open() func() {
	if !s.terminal {
		return func() {}
	}
	fmt.Fprint(s.out, openScreen)
	s.drawn = true
	return func() { fmt.Fprint(s.out, closeScreen) }
}

// draw shows text: over the last text on an open terminal, else below it.
func (s *screen) draw(text string) error {
	if !s.terminal || !s.drawn {
		if s.drawn {
			text = "\n" + text
		}
		s.drawn = !s.terminal
		_, err := fmt.Fprint(s.out, text)
		return err
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if _, height := s.size(); height > 0 && len(lines) > height {
		lines = append(lines[:height-1], "...")
	}
	// One write, and nothing is cleared before it is overwritten, so nothing flickers.
	_, err := fmt.Fprint(s.out, toBegin+strings.Join(lines, clearLine+"\n")+clearLine+clearBelow)
	return err
}

func (s *screen) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *screen) bad(text string) string   { return s.paint("31;1", text) }
func (s *screen) good(text string) string  { return s.paint("32", text) }
func (s *screen) quiet(text string) string { return s.paint("2", text) }
func (s *screen) title(text string) string { return s.paint("1", text) }
