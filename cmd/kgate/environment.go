package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/kgate/kgate/internal/config"
)

const variablePrefix = "KGATE_"

// misspelt says which environment variables mean nothing, each in a sentence.
type misspelt []string

// misspeltVariables names what in an environment looks like a variable of ours and is
// none: it would have been given for nothing. Others that begin with KGATE_ are not
// named: Kubernetes makes some for a service named kgate.
func misspeltVariables(environ []string, root *kong.Node) misspelt {
	known := variables(root, make(map[string]bool))
	var names []string
	for name := range known {
		names = append(names, strings.TrimPrefix(name, variablePrefix))
	}
	var texts misspelt
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(name, variablePrefix)
		if !ours || known[name] || strings.HasPrefix(rest, "SERVICE_") || strings.HasPrefix(rest, "PORT") {
			continue
		}
		if near := config.Nearest(rest, names); near != "" {
			texts = append(texts, fmt.Sprintf("the environment variable %s means nothing; is it %s%s?", name, variablePrefix, near))
		}
	}
	return texts
}

// variables adds those that the flags of a command and those below it take.
func variables(node *kong.Node, known map[string]bool) map[string]bool {
	for _, flag := range node.Flags {
		for _, name := range flag.Envs {
			known[name] = true
		}
	}
	for _, child := range node.Children {
		variables(child, known)
	}
	return known
}
