// Package config is the typed configuration of a gateway: the YAML file, the
// flags and environment variables that override it, the defaults of what
// neither gives, and the checks.
//
// # What it promises
//
// A [Config] that [LoadWith] or [Parse] returns is complete and
// valid: [Config.Validate] finds nothing in it. A file that is not valid
// yields every error at once, joined; each one names file,
// line and column, the key, what is wrong and what to write instead. Unknown
// keys and keys given twice are errors, an unknown one names the nearest known
// one. A value that the file gives is never replaced silently: nothing is
// clamped, rounded or guessed. Whatever bytes a file holds, reading it ends in
// an error or a Config, in bounded time and memory.
//
// # Precedence
//
// From strongest to weakest: flag, environment variable, file, default.
// [Overrides] carries the first two; the command line decides between them.
// What a flag says about a pool goes to the pool that --pool names, or to the
// only one there is; see [LoadWith].
//
// # Model
//
// The YAML text becomes a syntax tree (goccy/go-yaml), and one recursive
// descent over the tree and the Go types fills a copy of the defaults. The
// library's own strict decoder stops at its first error and forgets where a
// value came from; the descent does neither, so that checks which compare
// several keys still point at a line.
//
// # Reference
//
// docs/configuration.md and configs/kgate.schema.json are made from the types,
// the comments above their fields and the defaults; tests hold them to these.
package config

//go:generate go test -run TestReference|TestSchema$ . -update
