// Package library tests the Go package kgate as a program sees it that imports it.
package library
