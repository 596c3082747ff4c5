package docs

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Block is one of a page's blocks of commands.
type Block struct {
	Line   int // of its first line, for messages
	Text   string
	At     []string // machines
	Until  string   // what it says when it is up; it goes on running
	Shows  []string // what it says
	Fails  bool
	File   string // where the block goes instead of being run
	Copied string // the file that it makes here, and that all other machines get
	NotRun string // why
}

var directive = regexp.MustCompile(`^<!-- (.*) -->$`)

// Parse finds the blocks of a page that are to be run or kept.
func Parse(path string) ([]Block, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var blocks []Block
	var errs []error
	lines := strings.Split(string(data), "\n")
	for i := 0; i < len(lines); i++ {
		kind, fence := strings.CutPrefix(strings.TrimSpace(lines[i]), "```")
		if !fence {
			continue
		}
		b := Block{Line: i + 2}
		var marked bool
		if i > 0 {
			if m := directive.FindStringSubmatch(strings.TrimSpace(lines[i-1])); m != nil {
				marked = true
				if err := b.read(m[1]); err != nil {
					errs = append(errs, fmt.Errorf("%s:%d: %w", path, i, err))
				}
			}
		}
		indent := len(lines[i]) - len(strings.TrimLeft(lines[i], " "))
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			b.Text += lines[i][min(indent, len(lines[i])):] + "\n"
		}
		if kind == "sh" || marked {
			blocks = append(blocks, b)
		}
	}
	return blocks, errors.Join(errs...)
}

// read takes in what a comment says.
func (b *Block) read(comment string) error {
	for part := range strings.SplitSeq(comment, "; ") {
		word, rest, _ := strings.Cut(part, " ")
		quoted := strings.Trim(rest, `"`)
		switch word {
		case "at":
			b.At = strings.Fields(rest)
		case "until":
			b.Until = quoted
		case "shows":
			b.Shows = append(b.Shows, quoted)
		case "fails":
			b.Fails = true
		case "file":
			b.File = rest
		case "copied":
			b.Copied = rest
		case "not":
			b.NotRun = strings.TrimPrefix(rest, "run: ")
		default:
			return fmt.Errorf("what is %q? It is one of at, until, shows, fails, file, copied and not run", word)
		}
	}
	return nil
}
