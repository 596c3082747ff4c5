package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/kgate/kgate/internal/config"
)

const variablePrefix = "KGATE_"

// misspelt are warnings about environment variables that have no effect.
type misspelt []string

// misspeltVariables reports the variables of an environment that are close to ours: they
// would silently have no effect. It ignores others that begin with KGATE_: Kubernetes sets
// some for a service named kgate.
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
		if !ours || known[name] || name == variableUpstream || strings.HasPrefix(rest, "SERVICE_") || strings.HasPrefix(rest, "PORT") {
			continue
		}
		if near := config.Nearest(rest, names); near != "" {
			texts = append(texts, fmt.Sprintf("unknown environment variable %s; did you mean %s%s?", name, variablePrefix, near))
		}
	}
	return texts
}

// variables adds the variables of the flags of a command and of those below it.
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
