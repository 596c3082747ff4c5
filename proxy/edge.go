package proxy

import (
	"fmt"

	"github.com/kgate/kgate/internal/headeredit"
)

// Edge is how the gateway meets its clients, whatever route their requests take.
type Edge struct {
	// RequestIDHeader is the header by which requests have an id, such as X-Request-ID.
	// A client's id is kept if it has at most 128 letters, digits and -_.~:/+=@; all other
	// requests get a new one, a random UUID. The upstream and the client get the id in the
	// same header, and the access log, the request's span and the gateway's own answers
	// have it. Empty: requests have no id.
	RequestIDHeader string
}

// check returns what is wrong with e.
func (e Edge) check() error {
	if e.RequestIDHeader == "" {
		return nil
	}
	if err := headeredit.CheckRequest(e.RequestIDHeader); err != nil {
		return fmt.Errorf("the header for request ids: %w", err)
	}
	return nil
}
