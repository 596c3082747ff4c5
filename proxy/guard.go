package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/kgate/kgate/internal/httplist"
)

// maxFields is how many header fields a request may have. A waiting request keeps
// its header, and a field of two bytes costs a hundred: without a bound, 57 KB of
// header cost ten times as much.
const maxFields = 200

// ownMethods are what a gateway can pass on to somebody, for the header Allow.
const ownMethods = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"

// newPseudonym returns a name for a gateway in Via (RFC 9110, section 7.6.3), that no
// other has.
func newPseudonym() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "kgate-" + hex.EncodeToString(b[:])
}

// guard answers a request that must not be routed, and reports whether it has.
func (ex *exchange) guard(r *http.Request) (answered bool) {
	edge := &ex.snapshot.cfg.Edge
	switch {
	case ex.denied(r, edge.Access):
	case countFields(r.Header) > maxFields:
		ex.answerProblem(r, http.StatusRequestHeaderFieldsTooLarge, "the request has more than "+strconv.Itoa(maxFields)+" header fields")
	case r.Method == http.MethodConnect:
		ex.Header().Set("Allow", ownMethods)
		ex.answerProblem(r, http.StatusMethodNotAllowed, "this gateway does not open tunnels")
	case r.URL.Path == "*": // net/http answers OPTIONS
		ex.answerProblem(r, http.StatusBadRequest, `"*" is valid for OPTIONS only`)
	case hasDotSegment(r.URL.Path):
		ex.answerProblem(r, http.StatusBadRequest, `the path contains "." or ".." segments`)
	case hasPassed(r.Header["Via"], ex.snapshot.pseudonym):
		ex.answerProblem(r, http.StatusLoopDetected, "the request has come through this gateway before: an upstream leads back to it")
	case edge.HTTPSPort != 0 && !ex.snapshot.isSecure(r):
		ex.redirect(r)
	case mustNotForward(r):
		ex.answerLast(r)
	default:
		return false
	}
	return true
}

func countFields(header http.Header) int {
	n := len(header)
	if n > maxFields {
		return n
	}
	for _, values := range header {
		n += len(values) - 1
	}
	return n
}

// hasPassed reports whether the gateway of that name is in Via.
func hasPassed(via []string, pseudonym string) bool {
	for hop := range httplist.Elements(via) {
		if _, by, _ := strings.Cut(hop, " "); strings.HasPrefix(by, pseudonym) {
			return true
		}
	}
	return false
}

// Max-Forwards bounds how many hops an OPTIONS or a TRACE takes (RFC 9110, section
// 7.6.2); with other methods it means nothing.
func maxForwards(r *http.Request) (n uint64, ok bool) {
	if r.Method != http.MethodOptions && r.Method != http.MethodTrace {
		return 0, false
	}
	values := r.Header["Max-Forwards"]
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseUint(values[0], 10, 32)
	return n, err == nil
}

func mustNotForward(r *http.Request) bool {
	n, ok := maxForwards(r)
	return ok && n == 0
}

// answerLast answers a request that has come to the last of its hops here. What a
// TRACE would be answered with, the gateway keeps to itself: it may hold secrets.
func (ex *exchange) answerLast(r *http.Request) {
	allow := ex.snapshot.routes.allow(r)
	if allow == "" {
		allow = ownMethods
	}
	ex.Header().Set("Allow", allow)
	if r.Method == http.MethodTrace {
		ex.answerProblem(r, http.StatusMethodNotAllowed, "this gateway does not answer TRACE itself")
		return
	}
	ex.Header().Set("Content-Length", "0")
	ex.WriteHeader(http.StatusOK)
}

// noRoute answers a request that no route takes.
func (ex *exchange) noRoute(r *http.Request) {
	if allow := ex.snapshot.routes.allow(r); allow != "" {
		ex.Header().Set("Allow", allow)
		ex.answerProblem(r, http.StatusMethodNotAllowed, "no route takes this method here; allowed: "+allow)
		return
	}
	ex.answerProblem(r, http.StatusNotFound, "no route matches this request")
}
