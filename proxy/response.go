package proxy

import (
	"net/http"
	"strings"
)

// cleanResponse takes out of an upstream's answer what is not the upstream's to say
// to a client of the gateway, and keeps net/http from adding what it has not said.
func (ex *exchange) cleanResponse(res *http.Response) {
	removeReserved(res.Header)
	removeReserved(res.Trailer)
	if _, ok := res.Header["Content-Type"]; !ok {
		ex.Header()["Content-Type"] = nil // else net/http would guess one
	}
}

// removeReserved removes what only the gateway may say in an answer: Kgate-*, by
// which its own answers are known; and Alt-Svc, which would lead clients past it.
func removeReserved(h http.Header) {
	for name := range h {
		bare := strings.TrimPrefix(name, http.TrailerPrefix)
		if hasNamePrefix(bare, "Kgate") || bare == "Alt-Svc" {
			delete(h, name)
		}
	}
}

// cleanTrailers does the same when the answer has ended: its trailers have come.
func (ex *exchange) cleanTrailers() {
	if ex.rec.UpstreamStatus != 0 && ex.remaining < 0 { // of no known length: it may have some
		removeReserved(ex.Header())
	}
}

// closeIfDraining tells the client that this gateway is going, so that the next
// request goes to another one. In HTTP/2 net/http makes it a GOAWAY, which ends no
// request.
func (ex *exchange) closeIfDraining() {
	if draining := ex.handler.cfg.Draining; draining != nil && draining() {
		ex.Header().Set("Connection", "close")
	}
}
