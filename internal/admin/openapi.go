package admin

import (
	_ "embed" // the document
	"net/http"
)

//go:embed openapi.json
var openapiText []byte

// openapi answers with the description of the API.
func openapi(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapiText)
}
