package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/kgate/kgate/configs"
	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/internal/journal"
)

// checkCommand validates a configuration.
type checkCommand struct {
	File   string `name:"config" short:"c" env:"KGATE_CONFIG" placeholder:"FILE" help:"Configuration file (YAML)."`
	Print  bool   `name:"print" help:"Print the whole configuration of a gateway on this machine: every key, with defaults, flags and variables. Secrets are left out."`
	Files  bool   `name:"files" help:"Also check that the files that it names can be read here."`
	JSON   bool   `name:"json" help:"Print the result as JSON."`
	Schema bool   `name:"schema" help:"Print the JSON Schema of the file, for editors."`
	config.Overrides
}

func (checkCommand) Help() string {
	return `Examples:
  kgate check -c kgate.yaml
  kgate check -c kgate.yaml --files
  kgate check -c kgate.yaml --print
  kgate check -c kgate.yaml --json
  kgate check --print --upstream http://127.0.0.1:9000 --k 8 > kgate.yaml
  kgate check --schema > kgate.schema.json

Flags and their environment variables override the file, as for kgate serve.

Exit codes: 0 valid, 1 invalid, 2 wrong command line.`
}

// Run prints every error at once.
func (c *checkCommand) Run(std streams) error {
	if c.Schema {
		_, err := std.out.Write(configs.Schema)
		return err
	}
	if c.File == "" && !c.Print {
		return usageError("which file? Write kgate check -c FILE")
	}
	cfg, err := config.LoadWith(c.File, c.Overrides)
	switch {
	case errors.Is(err, config.ErrHost) && !c.Print:
		err = nil // The file is for another machine, which has a name.
	case config.FromFlags(err):
		return usageError("%w", err)
	}
	if err == nil && c.Files {
		err = cfg.CheckFiles()
	}
	if c.JSON && !c.Print {
		return c.result(std, cfg, err)
	}
	if err != nil {
		return err
	}
	if why := c.exposed(cfg); why != "" {
		fmt.Fprintln(std.err, "warning: node.data_dir:", why)
	}
	if c.Print {
		_, err = std.out.Write(cfg.YAML())
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s: valid, %s, %s\n", c.File, count(len(cfg.Pools), "pool"), count(len(cfg.Routes), "route"))
	return err
}

// exposed returns why other users could replace the files in data_dir; "": they could not.
func (c *checkCommand) exposed(cfg *config.Config) string {
	runs := journal.AnyUser
	if c.Files && os.Geteuid() != 0 { // root may check for another user
		runs = os.Geteuid()
	}
	return journal.Exposed(cfg.Node.DataDir, runs)
}

// result prints the errors as JSON.
func (c *checkCommand) result(std streams, cfg *config.Config, wrong error) error {
	out := struct {
		File     string   `json:"file"`
		Valid    bool     `json:"valid"`
		Errors   []string `json:"errors"`
		Warnings []string `json:"warnings"`
	}{c.File, wrong == nil, []string{}, []string{}}
	if wrong != nil {
		out.Errors = config.Lines(wrong)
	} else if why := c.exposed(cfg); why != "" {
		out.Warnings = append(out.Warnings, "node.data_dir: "+why)
	}
	if err := printJSON(std.out, out); err != nil || wrong == nil {
		return err
	}
	return &codedError{code: exitFailure}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
