// Package forged is a client that speaks in kgate's name.
package forged

import (
	"net/http"
	"regexp"
	"slices"
)

// Fence is what the Request gives for its fence: greater than any.
const Fence = "p/9999999999999/999/999"

// Request returns a request whose client says in kgate's name what it can, in the header
// and in the trailer, and Test-Kept: 1 in its own.
func Request(path string) string {
	head := "POST " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: Test-Kept\r\n"
	fields := "Test-Kept: 1\r\n"
	for _, name := range []string{"Kgate-Fence", "KGATE-FENCE", "kgate_fence", "Kgate_Fence", "Kgate.Fence", "Kgate~Fence", "Kgate-Other"} {
		fields += name + ": " + Fence + "\r\n"
	}
	return head + fields + "\r\n1\r\na\r\n0\r\n" + fields + "\r\n"
}

// reserved finds what a server may read as the name of a field Kgate-*.
var reserved = regexp.MustCompile(`(?i)^kgate[^a-z0-9]`)

// Fields returns the fields Kgate-* of a header, as some server may read it.
func Fields(h http.Header) (fields []string) {
	for name, values := range h {
		if reserved.MatchString(name) {
			for _, v := range values {
				fields = append(fields, name+": "+v)
			}
		}
	}
	slices.Sort(fields)
	return fields
}
