package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/kgate/kgate/internal/headeredit"
	"github.com/kgate/kgate/proxy/http1"
)

// Edge is how the gateway meets its clients, whatever route their requests take.
type Edge struct {
	// RequestIDHeader is the header by which requests have an id, such as X-Request-ID.
	// A client's id is kept if it has at most 128 letters, digits and -_.~:/+=@; all other
	// requests get a new one, a random UUID. The upstream and the client get the id in the
	// same header, and the access log, the request's span and the gateway's own answers
	// have it. Empty: requests have no id.
	RequestIDHeader string
	// HTTPSPort is the port that clients are redirected to, with status 308, which keeps
	// method and body, unless they use TLS, or a trusted proxy says in X-Forwarded-Proto
	// that they do. 0: none is redirected.
	HTTPSPort int
	// HSTS is the value of Strict-Transport-Security (RFC 6797) in answers to clients that
	// use TLS. Empty: there is none.
	HSTS string
	// Access says which clients are served, the ticket API included.
	Access Access
	// WaitingHeaderBytes bounds what the headers of all requests that wait may take; default
	// 32 MiB. What does not fit is refused at once, unless it gets a slot at once.
	WaitingHeaderBytes int64
	// ErrorPages are shown in place of the gateway's own text.
	ErrorPages []*ErrorPage
}

// Access says by their addresses which clients are served: those in Allow, or all if it
// is empty, but none in Deny. Others get 403 or, over TCP, a reset.
type Access struct{ Allow, Deny []netip.Prefix }

// allows reports whether a client is served. One whose address is not known is in no list.
func (a Access) allows(client netip.Addr) bool {
	return (len(a.Allow) == 0 || containsAddr(a.Allow, client)) && !containsAddr(a.Deny, client)
}

// limits reports whether the address of a client matters.
func (a Access) limits() bool { return len(a.Allow)+len(a.Deny) > 0 }

// check returns what is wrong with e.
func (e Edge) check() error {
	var errs []error
	if e.RequestIDHeader != "" {
		if err := headeredit.CheckRequest(e.RequestIDHeader); err != nil {
			errs = append(errs, fmt.Errorf("the header for request ids: %w", err))
		}
	}
	if e.WaitingHeaderBytes < 0 {
		errs = append(errs, fmt.Errorf("no headers of %d bytes can wait", e.WaitingHeaderBytes))
	}
	if e.HTTPSPort < 0 || e.HTTPSPort > 65535 {
		errs = append(errs, fmt.Errorf("there is no port %d", e.HTTPSPort))
	}
	if !httpguts.ValidHeaderFieldValue(e.HSTS) {
		errs = append(errs, fmt.Errorf("%q cannot be the value of Strict-Transport-Security", e.HSTS))
	}
	return errors.Join(errs...)
}

// redirect sends a client to the same address over TLS.
func (ex *exchange) redirect(r *http1.Request) {
	host := hostname(r.Host)
	if host == "" || !httpguts.ValidHostHeader(host) || strings.ContainsAny(host, " /") {
		ex.answerDoubt(r, http.StatusBadRequest, "this gateway serves https only, and the request has no valid host to redirect to")
		return
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := ex.snapshot.cfg.Edge.HTTPSPort; port != 443 {
		host += ":" + strconv.Itoa(port)
	}
	target := r.URL.RequestURI()
	if isOfServer(r) {
		target = ""
	}
	ex.Header().Set("Location", "https://"+host+target)
	ex.Header().Set("Content-Length", "0")
	ex.WriteHeader(http.StatusPermanentRedirect)
}

// denied answers a client that is not served, and reports whether it is one.
func (ex *exchange) denied(r *http1.Request, a Access) bool {
	if !a.limits() {
		return false
	}
	if a.allows(ex.info.Remote) {
		return false
	}
	ex.answerProblem(r, http.StatusForbidden, "clients of the address "+ex.info.Remote.String()+" are not served here")
	return true
}
