package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kgate/kgate/internal/admin"
)

// reloadCommand has a gateway read its configuration again.
type reloadCommand struct {
	JSON bool `name:"json" help:"Print the document of /api/v1/reload."`
	adminFlags
}

func (reloadCommand) Help() string {
	return `The gateway at --admin reads its file again, as on SIGHUP, and says what has
changed. A file with errors changes nothing; the errors are printed.

Examples:
  kgate reload
  kgate reload --admin http://10.0.0.2:9080 --admin-token-file token

Exit codes: 0 the file counts now, 1 it has errors or the gateway does not answer,
2 wrong command line.`
}

// Run asks the gateway to read its file, and prints the changes.
func (c *reloadCommand) Run(std streams) error {
	_, name, data, err := c.postOne(context.Background(), "/api/v1/reload")
	if err != nil {
		return err
	}
	if c.JSON {
		_, err = std.out.Write(data)
		return err
	}
	var told admin.Reloaded
	if err := json.Unmarshal(data, &told); err != nil {
		return fmt.Errorf("%s does not answer as a kgate does: %w", name, err)
	}
	fmt.Fprintf(std.out, "%s has read its configuration: %s\n", name, count(len(told.Changes), "change"))
	for _, change := range told.Changes {
		fmt.Fprintln(std.out, " ", change)
	}
	return nil
}
