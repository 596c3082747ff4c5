package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
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

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(std streams) error {
	v, revision := buildVersion()
	if revision != "" {
		v += " (" + revision + ")"
	}
	_, err := fmt.Fprintf(std.out, "kgate %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
