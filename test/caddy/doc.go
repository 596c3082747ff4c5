// Package caddy tests the Caddy module of contrib/caddy with real Caddys. It compiles
// Caddy, which takes minutes when nothing of it is in the build cache: the tests are
// part of make soak.
package caddy
