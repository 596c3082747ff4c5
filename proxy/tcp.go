package proxy

import "fmt"

// TCP routes the connections of one listener to pools. Each is one request of its pool: it
// takes a slot when it begins and gives it back when it ends.
type TCP struct {
	// Listener is the name of the listener, which [downstream.Server.ServeTCP] is given.
	Listener string
	// Pool that admits the connections. It has an upstream of scheme tcp. Empty: only
	// clients are served that ask for one of Names.
	Pool string
	// Names route TLS clients by the server name that they ask for; the first that
	// matches counts. The TLS connection itself is the upstream's.
	Names []ServerName
	// Access says which clients are served.
	Access Access
}

// ServerName routes the clients that ask for a server to a pool.
type ServerName struct {
	// Host is compared regardless of case. "*.example.com" matches every name below
	// example.com.
	Host string
	Pool string
}

// check returns what is wrong with t.
func (t TCP) check(pools map[string]*Pool) []string {
	var msgs []string
	for _, name := range t.pools() {
		switch {
		case pools[name] == nil:
			msgs = append(msgs, fmt.Sprintf("there is no pool %q", name))
		case !pools[name].serves(true):
			msgs = append(msgs, fmt.Sprintf("pool %q has no upstream of scheme tcp", name))
		}
	}
	return msgs
}

// pools returns the names of the pools that t routes to.
func (t TCP) pools() []string {
	var names []string
	if t.Pool != "" || len(t.Names) == 0 {
		names = append(names, t.Pool)
	}
	for _, n := range t.Names {
		names = append(names, n.Pool)
	}
	return names
}

// tcpRoute is a TCP made ready. Its routes match by host alone.
type tcpRoute struct {
	listener string
	access   Access
	named    routes
	other    *route // of clients that none of named matches; nil: they are refused
}

// find returns the route of a client that asks for a server; nil: it is refused.
func (r *tcpRoute) find(name string) *route {
	for _, named := range r.named {
		if name != "" && named.matches(name, "") {
			return named
		}
	}
	return r.other
}
