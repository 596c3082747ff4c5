//go:build !unix

package proxy

// defaultMaxConnections is none where the system does not say.
func defaultMaxConnections() int { return 0 }
