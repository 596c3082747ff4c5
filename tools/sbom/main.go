// Sbom prints which modules are in a Go binary, as a CycloneDX document. It reads
// what the linker has written into the binary itself, so nothing can be missing.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY")
		os.Exit(2)
	}
	if err := print(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func print(w io.Writer, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: "binary", Type: cdx.ComponentTypeApplication, Name: info.Path, Version: info.Main.Version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}}
	// The time of the commit, not of the build: the document is to be the same again.
	if epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		bom.Metadata.Timestamp = time.Unix(epoch, 0).UTC().Format(time.RFC3339)
	}
	components := []cdx.Component{module("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, module(m.Path, m.Version, m.Sum))
	}
	bom.Components = &components
	needs := make([]string, 0, len(components))
	for _, c := range components {
		needs = append(needs, c.BOMRef)
	}
	bom.Dependencies = &[]cdx.Dependency{{Ref: "binary", Dependencies: &needs}}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// module returns the component of a module; sum is as in go.sum, and may be empty.
func module(path, version, sum string) cdx.Component {
	c := cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: path, Version: version,
		PackageURL: "pkg:golang/" + path + "@" + version,
	}
	c.BOMRef = c.PackageURL
	if sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go.sum", Value: sum}} // a hash of hashes, not of a file
	}
	return c
}
