package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestMisspeltVariable: a warning names a variable that is nearly one of kgate's, and none of other
// programs' variables.
func TestMisspeltVariable(t *testing.T) {
	t.Setenv("KGATE_UPSTREM", "http://h")
	t.Setenv("KGATE_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KGATE_PORT_8080_TCP", "tcp://10.0.0.1:8080")
	t.Setenv("KGATE_PORT", "tcp://10.0.0.1:8080")
	t.Setenv("KGATE_SOAK", "1")
	t.Setenv("KGATE_LOG_LEVEL", "debug")
	var out, errs bytes.Buffer
	if code := run([]string{"version"}, streams{&out, &errs}); code != exitOK {
		t.Error(errs.String())
	}
	if got := errs.String(); got != "kgate: unknown environment variable KGATE_UPSTREM; did you mean KGATE_UPSTREAM?\n" {
		t.Errorf("got %q", got)
	}
}

// TestExecSetsNoFlag: the variables that kgate exec sets for its command do not configure a kgate there.
func TestExecSetsNoFlag(t *testing.T) {
	var cli commands
	parser, err := kong.New(&cli)
	if err != nil {
		t.Fatal(err)
	}
	known := variables(parser.Model.Node, make(map[string]bool))
	for _, name := range []string{variableTicket, variableFence, variableUpstream} {
		if known[name] {
			t.Errorf("%s is a flag's", name)
		}
	}
	if said := misspeltVariables([]string{variableTicket + "=x", variableFence + "=x", variableUpstream + "=x"}, parser.Model.Node); len(said) > 0 {
		t.Error(said)
	}
}

func TestVersionFlag(t *testing.T) {
	var flag, command, errs bytes.Buffer
	if code := run([]string{"--version"}, streams{&flag, &errs}); code != exitOK {
		t.Error(errs.String())
	}
	if code := run([]string{"version"}, streams{&command, &errs}); code != exitOK || flag.String() != command.String() || !strings.HasPrefix(flag.String(), "kgate ") {
		t.Errorf("%q, %q", flag.String(), command.String())
	}
}
