package main

import "errors"

// labCommand says where the simulator went. It goes with the next release.
type labCommand struct {
	Args []string `arg:"" optional:""`
}

func (c *labCommand) Run() error {
	if len(c.Args) > 0 && c.Args[0] == "plan" {
		return &codedError{exitUsage, errors.New("kgate lab plan is now kgate plan")}
	}
	return &codedError{exitUsage, errors.New("kgate lab is now a program of its own: go run github.com/kgate/kgate/cmd/kgate-lab")}
}
