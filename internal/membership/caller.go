package membership

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"slices"

	"github.com/kgate/kgate/internal/peercert"
)

// Over TLS a gateway speaks under the name in its certificate. What it may ask of
// others follows from that: to go itself, to renew its own lease, and as a member
// what any gateway may; a change that people make needs their token as well.

// adminTokenHeader carries the token of who changes k, defines a pool or suspends a
// gateway.
const adminTokenHeader = "Kgate-Admin-Token"

// callerNames returns the names in the caller's certificate; nil without TLS.
func callerNames(r *http.Request) []string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	return peercert.Names(r.TLS.PeerCertificates[0])
}

// allowed returns an error if a command may not be asked for in this way.
func (c *Cluster) allowed(r *http.Request, cmd command) error {
	v := c.View()
	switch {
	case cmd.leaders():
		return fmt.Errorf("%w: only the leader judges other gateways", ErrCommand)
	case cmd.Remove != nil:
		m, in := v.Member(cmd.Remove.Node)
		if err := peercert.OfState(r.TLS, m.Name); in && err != nil {
			return fmt.Errorf("%w: a gateway can take out itself only: %w", ErrCommand, err)
		}
	case (cmd.SetK != nil || cmd.Suspend != nil || cmd.Define != nil) && !c.tokenFits(r.Header.Get(adminTokenHeader)):
		return fmt.Errorf("%w: the leader asks for the admin token: give every gateway the same node.admin_token_file", ErrCommand)
	default:
		var names []string
		for _, m := range v.Members {
			names = append(names, m.Name)
		}
		if err := peercert.OfState(r.TLS, names...); err != nil {
			return fmt.Errorf("%w: not from a member: %w", ErrCommand, err)
		}
	}
	return nil
}

// tokenFits reports whether the token is one of ours, or none is needed.
func (c *Cluster) tokenFits(token string) bool {
	tokens := c.proposer.adminTokens()
	return len(tokens) == 0 || slices.ContainsFunc(tokens, func(own string) bool {
		return subtle.ConstantTimeCompare([]byte(own), []byte(token)) == 1
	})
}
