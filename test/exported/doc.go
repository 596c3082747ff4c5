// Package exported tests that what a package exports has a user in another one.
package exported
