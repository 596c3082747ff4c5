package config

import (
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/hostaddr"
	"github.com/kgate/kgate/internal/socket"
)

func (v *validator) listen(l Listen, adminTokenFile string) {
	type listener struct{ key, addr string }
	all := []listener{{"listen.http", l.HTTP}, {keyHTTPS, l.HTTPS}, {keyAdmin, l.Admin}, {"listen.peer", l.Peer}}
	for i, t := range l.TCP {
		all = append(all, listener{fmt.Sprintf("%s[%d].addr", keyTCP, i), t.Addr})
	}
	for i, a := range all {
		if a.addr == "" && a.key == keyHTTPS {
			continue
		}
		wrong, hint := checkHostPort(a.addr, false)
		if path, ok := socket.Path(a.addr); ok && a.key == keyAdmin {
			wrong, hint = "", ""
			if err := socket.Check(path); err != nil {
				wrong, hint = quote(a.addr)+": "+err.Error(), "write a path such as unix:/run/kgate/admin.sock"
			}
		}
		v.wrong(a.key, wrong, hint)
		for _, b := range all[:i] {
			if collide(a.addr, b.addr) {
				v.wrong(a.key, fmt.Sprintf("%s is the address of %s, too", quote(a.addr), b.key), "write another port")
			}
		}
	}
	v.clientTLS(l)
	v.httpsOnly(l)
	v.adminToken(l.Admin, adminTokenFile)
	for i, name := range l.AdminNames {
		if !isHost(name) {
			v.wrong(fmt.Sprintf("listen.admin_names[%d]", i), quote(name)+" is not a host name", "write a name such as kgate.example.com")
		}
	}
	v.duration("listen.header_timeout", l.HeaderTimeout, 1)
	v.duration("listen.idle_timeout", l.IdleTimeout, 1)
	v.whole("listen.max_header_bytes", l.MaxHeaderBytes, 4096, 16<<20)
	v.whole("listen.waiting_header_bytes", l.WaitingHeaderBytes, 1<<20, math.MaxInt32)
	v.whole("listen.max_connections", l.MaxConnections, 0, math.MaxInt32)
}

// tcp checks that each TCP listener has a pool, and each tcp upstream a listener.
func (v *validator) tcp(listeners []Listener, pools []Pool) {
	used := make(map[string]bool)
	for i, l := range listeners {
		key := fmt.Sprintf("%s[%d]", keyTCP, i)
		if l.Pool != "" || len(l.SNI) == 0 {
			v.tcpPool(key+".pool", l.Pool, pools)
		}
		used[l.Pool] = true
		for j, n := range l.SNI {
			at := fmt.Sprintf("%s.sni[%d]", key, j)
			v.tcpPool(at+".pool", n.Pool, pools)
			used[n.Pool] = true
			if !isHost(strings.TrimPrefix(n.Host, "*.")) {
				v.wrong(at+".host", quote(n.Host)+" is not a host name", "write a name such as db.example.com")
			}
		}
	}
	for i, p := range pools {
		for j, u := range p.Upstreams {
			if u != nil && u.Scheme == schemeTCP && !used[p.Name] && !v.src.broken(keyTCP) {
				v.wrong(fmt.Sprintf("%s[%d].upstreams[%d]", keyPools, i, j), "serves TCP connections, and none lead to this pool",
					`write listen.tcp: [{addr: ":873", pool: `+clip(p.Name)+`}]`)
			}
		}
	}
}

// tcpPool checks the name of a pool that admits connections.
func (v *validator) tcpPool(key, name string, pools []Pool) {
	if name == "" {
		v.wrong(key, "is missing", "write the name of the pool that admits the connections")
	} else if p := v.findPool(key, name, pools); p != nil && !p.serves(true) {
		v.wrong(key, "pool "+quote(name)+" has no tcp upstream", `write one under the pool, such as upstreams: ["tcp://10.0.1.1:873"]`)
	}
}

func (v *validator) clientTLS(l Listen) {
	const both = "write the PEM files cert and key, both"
	switch {
	case !l.TLS.Enabled() && l.HTTPS != "":
		v.wrong(keyHTTPS, "has no certificate", "write listen.tls: {cert: FILE, key: FILE}, or remove https")
	case l.TLS.Enabled() && l.HTTPS == "":
		v.wrong("listen.tls", "has no effect: listen.https is empty", `write listen.https, such as ":8443", or remove tls`)
	case l.TLS.Cert == "" && l.TLS.Key != "":
		v.wrong("listen.tls.cert", "is missing", both)
	case l.TLS.Cert != "" && l.TLS.Key == "":
		v.wrong("listen.tls.key", "is missing", both)
	}
	for i, c := range l.TLS.Certificates {
		key := fmt.Sprintf("%s[%d]", keyCertificates, i)
		if c.Cert == "" {
			v.wrong(key+".cert", "is missing", both)
		}
		if c.Key == "" {
			v.wrong(key+".key", "is missing", both)
		}
	}
	if len(l.TLS.Certificates) > 0 && !l.TLS.Enabled() {
		v.wrong(keyCertificates, "is for some clients, and there is none for the others", "write the one for all other clients as listen.tls.cert and key")
	}
}

// httpsOnly checks where clients are sent, and what they are told of it.
func (v *validator) httpsOnly(l Listen) {
	v.whole("listen.https_port", l.HTTPSPort, 0, math.MaxUint16)
	if l.HTTPSOnly && l.RedirectPort() == 0 && !v.src.broken(keyHTTPS) && !v.src.broken("listen.https_port") {
		v.wrong("listen.https_only", "cannot redirect: the port of https is not known",
			`write listen.https, such as ":8443"; or, if something in front of this gateway speaks TLS, listen.https_port: 443 and trusted_proxies`)
	}
	if !l.HTTPSOnly && l.HTTPSPort != 0 {
		v.wrong("listen.https_port", "has no effect without https_only", "write https_only: true, too, or remove it")
	}
	const key = "listen.hsts"
	h := l.HSTS
	v.duration(key+".max_age", h.MaxAge, 0)
	switch {
	case v.src.broken(key + ".max_age"):
	case h.MaxAge > 0 && h.MaxAge < time.Second:
		v.wrong(key+".max_age", h.MaxAge.String()+" is too short", "write whole seconds; a year is 8760h")
	case h.MaxAge == 0 && h.IncludeSubdomains:
		v.wrong(key, "has no effect without max_age", "write max_age, such as 24h; a year is 8760h")
	}
}

// adminToken checks that not everybody who reaches the admin address may
// change the cluster.
func (v *validator) adminToken(addr, tokenFile string) {
	if tokenFile != "" || v.src.broken("node.admin_token_file") {
		return
	}
	if _, _, err := net.SplitHostPort(addr); err == nil && !hostaddr.BoundTo(addr).IsLoopback() {
		v.wrong(keyAdmin, quote(addr)+" can be reached from other machines, and there is no admin token",
			"write node.admin_token_file, the file made by: kgate keygen --token; or listen on 127.0.0.1")
	}
}

// guard checks that not everybody who reaches the peer port may speak
// there.
func (v *validator) guard(c *Config) {
	if c.Cluster.guarded() || c.Cluster.Insecure || v.src.broken("cluster.key_file") || v.src.broken("cluster.join[0]") {
		return // half a guard is reported elsewhere
	}
	addr := c.Listen.Peer
	if c.alone() && addr == hostaddr.DefaultPeer {
		return // becomes an address of this machine
	}
	if bad, _ := checkHostPort(addr, false); bad == "" && !hostaddr.BoundTo(addr).IsLoopback() {
		v.wrong("listen.peer", quote(addr)+" is open to other machines, and there is no cluster.key_file",
			"write one, made once by: kgate keygen --out cluster.key; or cluster.insecure: true, which lets everybody in")
	}
}

// collide reports whether not both addresses can be listened on.
func collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	every := func(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }
	return hostA == hostB || every(hostA) || every(hostB)
}
