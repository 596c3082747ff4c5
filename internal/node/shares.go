package node

import (
	"encoding/hex"
	"math"
	"net/netip"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/gateway"
)

// shares returns what clients have of a pool, as the admin API shows it.
func shares(s *gateway.Sharing) []admin.Share {
	if s == nil {
		return nil
	}
	var out []admin.Share
	for _, c := range s.Most {
		out = append(out, admin.Share{
			Client: clientName(c.Key), Weight: c.Weight, Slots: c.Slots, InUse: c.InUse, Waiting: c.Waiting,
			Wait: admin.Times{Count: uint64(math.Round(c.Admitted)), MeanMillis: millis(c.MeanWait)}, OldestSeconds: c.Oldest.Seconds(),
		})
	}
	return out
}

// clientName shows a client's key: an address as it is. A name may be a secret, so of its digest the
// beginning is enough.
func clientName(key string) string {
	if _, err := netip.ParseAddr(key); err == nil {
		return key
	}
	const shown = 4
	return "#" + hex.EncodeToString([]byte(key[:min(shown, len(key))]))
}
