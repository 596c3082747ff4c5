package admin

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// ConfigForTest is of an address that shows the example.
func ConfigForTest() Config {
	return Config{
		Source:  &fixedSource{status: example(), entries: exampleEntries(), ready: true},
		Lines:   &someLines{gateway: "gw-1", id: "downloads.7.102@gw-1", trace: strings.Repeat("ab", 16)},
		Peers:   examplePeers{},
		Metrics: prometheus.NewRegistry(),
	}
}

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
