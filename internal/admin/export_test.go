package admin

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

// Serves reports whether a handler of the router has this method.
func Serves(h http.Handler, method string) bool {
	if chain, ok := h.(*chi.ChainHandler); ok {
		h = chain.Endpoint
	}
	if m, ok := h.(methods); ok {
		return m[method] != nil
	}
	return true
}
