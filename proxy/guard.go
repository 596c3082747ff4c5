package proxy

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/kgate/kgate/internal/httplist"
	"github.com/kgate/kgate/proxy/http1"
)

// maxFields is how many header fields a request may have. A waiting request keeps
// its header, and a field of two bytes costs fifty.
const maxFields = 200

// ownMethods are the methods that a route may forward, for the header Allow.
const ownMethods = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"

// newPseudonym returns a name for a gateway in Via (RFC 9110, section 7.6.3), that no
// other has.
func newPseudonym() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "kgate-" + hex.EncodeToString(b[:])
}

// guard answers a request that must not be routed, and reports whether it has.
func (ex *exchange) guard(r *http1.Request) (answered bool) {
	edge := &ex.snapshot.cfg.Edge
	switch wrong := cmp.Or(judgeTarget(r), judgeHTTP2(r)); {
	case ex.denied(r, edge.Access):
	case len(r.Fields) > maxFields:
		ex.answerDoubt(r, http.StatusRequestHeaderFieldsTooLarge, "the request has more than "+strconv.Itoa(maxFields)+" header fields")
	case !isCapitals(r.Method):
		ex.answerDoubt(r, http.StatusBadRequest, "the method "+r.Method+" is not in capitals")
	case r.Method == http.MethodConnect:
		ex.Header().Set("Allow", ownMethods)
		ex.answerDoubt(r, http.StatusMethodNotAllowed, "this gateway does not open tunnels")
	case wrong != "":
		ex.answerDoubt(r, http.StatusBadRequest, wrong)
	case hasPassed(r.Fields.Values("Via"), ex.snapshot.pseudonym):
		ex.answerProblem(r, http.StatusLoopDetected, "the request has come through this gateway before: an upstream leads back to it")
	case edge.HTTPSPort != 0 && !ex.snapshot.isSecure(r):
		ex.redirect(r)
	case mustNotForward(r), isOfServer(r):
		ex.answerLast(r)
	default:
		return false
	}
	return true
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

func mustNotForward(r *http1.Request) bool {
	n, ok := maxForwards(r)
	return ok && n == 0
}

// answerLast answers a request that goes no further. It does not echo a
// TRACE, whose header may hold secrets.
func (ex *exchange) answerLast(r *http1.Request) {
	ex.Header().Set("Allow", cmp.Or(ex.snapshot.routes.allow(r), ownMethods))
	if r.Method == http.MethodTrace {
		ex.answerProblem(r, http.StatusMethodNotAllowed, "this gateway does not answer TRACE itself")
		return
	}
	ex.Header().Set("Content-Length", "0")
	ex.WriteHeader(http.StatusOK)
}

// noRoute answers a request that no route takes.
func (ex *exchange) noRoute(r *http1.Request) {
	if allow := ex.snapshot.routes.allow(r); allow != "" {
		ex.Header().Set("Allow", allow)
		ex.answerProblem(r, http.StatusMethodNotAllowed, "no route takes this method here; allowed: "+allow)
		return
	}
	ex.answerProblem(r, http.StatusNotFound, "no route matches this request")
}

// answerPreflight tells a browser what a page may send.
func (ex *exchange) answerPreflight(r *http1.Request, cors *CORS) {
	h := ex.Header()
	h.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	if cors.allows(r.Fields.Get("Origin")) {
		h.Set("Access-Control-Allow-Methods", r.Fields.Get("Access-Control-Request-Method"))
		if asked := r.Fields.Values("Access-Control-Request-Headers"); len(asked) > 0 {
			h["Access-Control-Allow-Headers"] = asked
		}
		h.Set("Access-Control-Max-Age", preflightAge)
	}
	ex.WriteHeader(http.StatusNoContent)
}
