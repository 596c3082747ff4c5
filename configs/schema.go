// Package configs holds the JSON Schema of the configuration file. Beside it are
// example configurations, and those for what stands around a gateway.
package configs

import _ "embed"

// Schema is the JSON Schema of the configuration file, made from the types of
// package config.
//
//go:embed kgate.schema.json
var Schema []byte
