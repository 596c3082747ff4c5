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
	Schema bool   `name:"schema" help:"Print the JSON Schema of the file, for editors."`
	config.Overrides
}

func (checkCommand) Help() string {
	return `Examples:
  kgate check -c kgate.yaml
  kgate check -c kgate.yaml --files
  kgate check -c kgate.yaml --print
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
		return &codedError{code: exitUsage, err: errors.New("which file? Write kgate check -c FILE")}
	}
	cfg, err := config.LoadWith(c.File, c.Overrides)
	switch {
	case errors.Is(err, config.ErrHost) && !c.Print:
		// The file is for another machine, which has a name.
	case config.FromFlags(err):
		return &codedError{code: exitUsage, err: err}
	case err != nil:
		return err
	}
	if c.Files {
		if err := cfg.CheckFiles(); err != nil {
			return err
		}
	}
	runs := journal.AnyUser
	if c.Files && os.Geteuid() != 0 { // root may check for another user
		runs = os.Geteuid()
	}
	if why := journal.Exposed(cfg.Node.DataDir, runs); why != "" {
		fmt.Fprintln(std.err, "warning: node.data_dir:", why)
	}
	if c.Print {
		_, err = std.out.Write(cfg.YAML())
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s: valid, %s, %s\n", c.File, count(len(cfg.Pools), "pool"), count(len(cfg.Routes), "route"))
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
