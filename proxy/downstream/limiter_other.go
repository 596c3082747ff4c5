//go:build !unix

package downstream

// defaultMaxConnections is none where the system does not say.
func defaultMaxConnections() int { return 0 }
