package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand prints the script with which a shell completes kgate's command lines.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionCommand) Help() string {
	return `Examples:
  kgate completion bash > /etc/bash_completion.d/kgate
  kgate completion zsh > "${fpath[1]}/_kgate"
  kgate completion fish > ~/.config/fish/completions/kgate.fish

The Debian package brings all three.`
}

// The shells ask kgate itself, so they offer this version's commands and flags. If it offers nothing they
// complete file names.
var completionScripts = map[string]string{
	"bash": `_kgate() {
    mapfile -t COMPREPLY < <("$1" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _kgate kgate
`,
	"zsh": `#compdef kgate
_kgate() {
    local -a offers
    offers=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${offers[1]}" ]]; then compadd -- "${offers[@]}"; else _files; fi
}
if [ "$funcstack[1]" = _kgate ]; then _kgate "$@"; else compdef _kgate kgate; fi
`,
	"fish": `function __kgate_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] complete -- $words[2..-1] 2>/dev/null
end
complete -c kgate -a '(__kgate_complete)'
`,
}

func (c *completionCommand) Run(std streams) error {
	_, err := io.WriteString(std.out, completionScripts[c.Shell])
	return err
}

// completeCommand is the command that the scripts run.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints the completions of the last word, one on each line.
func (c *completeCommand) Run(app *kong.Context, std streams) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" { // ends this command's own flags
		words = words[1:]
	}
	for _, offer := range offers(app.Model.Node, words) {
		fmt.Fprintln(std.out, offer)
	}
	return nil
}

// offers returns the completions of the last of the words after the program's name.
func offers(at *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	begun := words[len(words)-1]
	var value *kong.Flag // whose value is the next word
	for _, word := range words[:len(words)-1] {
		if value != nil {
			value = nil
			continue
		}
		if strings.HasPrefix(word, "-") {
			value = takesNext(at, word)
		} else if i := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == word }); i >= 0 {
			at = at.Children[i]
		}
	}
	var all []string
	switch {
	case value != nil:
		all = value.EnumSlice()
	case strings.HasPrefix(begun, "-"):
		for _, f := range slices.Concat(at.AllFlags(true)...) {
			all = append(all, "--"+f.Name)
		}
	default:
		for _, n := range at.Children {
			if !n.Hidden {
				all = append(all, n.Name)
			}
		}
		for _, p := range at.Positional {
			all = append(all, p.EnumSlice()...)
		}
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" || !strings.HasPrefix(s, begun) })
}

// takesNext returns the flag that a word names if its value is the next word.
func takesNext(at *kong.Node, word string) *kong.Flag {
	for _, f := range slices.Concat(at.AllFlags(false)...) {
		if named := word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short); named && !f.IsBool() {
			return f
		}
	}
	return nil
}
