package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// version is set by the linker in released binaries.
var version = "dev"

// buildVersion returns the version and the source revision, as far as known.
func buildVersion() (v, revision string) {
	v = version
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v, ""
	}
	if v == "dev" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		v = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return v, revision
}

func versionLine() string {
	v, revision := buildVersion()
	if revision != "" {
		v += " (" + revision + ")"
	}
	return fmt.Sprintf("kgate %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

type versionCommand struct {
	JSON bool `name:"json" help:"Print it as JSON."`
}

func (c versionCommand) Run(std streams) error {
	if c.JSON {
		v, revision := buildVersion()
		return printJSON(std.out, map[string]string{"version": v, "revision": revision, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
	}
	_, err := io.WriteString(std.out, versionLine())
	return err
}

// versionFlag prints the version, too: people try --version first.
type versionFlag bool

// BeforeReset implements kong's hook, which runs before required flags are checked.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	_, err := io.WriteString(app.Stdout, versionLine())
	app.Exit(exitOK)
	return err
}
