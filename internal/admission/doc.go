// Package admission holds the vocabulary of admission: requests, grants, refusals and outcomes. The
// gateway, the proxy, the metrics, the admin API and the configuration share it. Each word is declared
// here and nowhere else.
//
// # A new reason to refuse
//
// Add a [Reason] and its row in the table of reason.go, and return it where the
// request is refused. The HTTP status, the problem document, the header
// Kgate-Refusal, the access log and the metrics follow from the row.
package admission
