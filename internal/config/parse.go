package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kgate/kgate/internal/socket"
	"github.com/kgate/kgate/kmutex"
)

const hintURL = "write a URL such as http://127.0.0.1:9000"

// parseUpstream reads the URL of an upstream.
func parseUpstream(s string) (*url.URL, error) {
	if s == "" {
		return nil, problem("is empty", hintURL)
	}
	shown := quote(s)
	if strings.Contains(s, "@") {
		shown = "the value" // may hold a password
	}
	u, err := url.Parse(s)
	noScheme := err != nil || u.Scheme == "" || (u.Opaque != "" && isPort(u.Opaque))
	if noScheme && !strings.Contains(s, "://") {
		hint := hintURL
		if !strings.Contains(s, "@") {
			hint = "write http://" + strings.TrimLeft(clip(s), "/")
		}
		return nil, problem(shown+" has no scheme", hint)
	}
	if err != nil {
		return nil, problem(shown+" is not a URL", hintURL)
	}
	if wrong, hint := checkUpstream(u); wrong != "" {
		return nil, problem(wrong, hint)
	}
	return u, nil
}

const (
	schemeTCP  = "tcp"
	schemeUnix = "unix"
)

var upstreamSchemes = []string{"http", "https", "h2c", schemeUnix, schemeTCP}

// checkUpstream says what is wrong with u as the URL of an upstream.
func checkUpstream(u *url.URL) (wrong, hint string) {
	switch {
	case !slices.Contains(upstreamSchemes, u.Scheme):
		return "the scheme " + quote(u.Scheme) + " cannot be proxied to", "write http://, https://, h2c:// for HTTP/2 in the clear, unix: for a socket, or tcp:// for other protocols"
	case u.Scheme == schemeUnix && (u.Host != "" || u.Path == "" || socket.Check(u.Path) != nil):
		return quote(u.Redacted()) + " is not the path of a socket", "write a path such as unix:/run/app.sock"
	case u.Scheme != schemeUnix && u.Hostname() == "":
		return quote(u.Redacted()) + " has no host", hintURL
	case u.User != nil:
		return "holds a user name, which is not passed on", "write the URL without the part before @"
	case u.RawQuery != "" || u.ForceQuery:
		return "holds a query, which is not passed on", "write the URL without ? and what follows it"
	case u.Fragment != "" && !isWeight(u.Fragment) && !isK(u.Fragment):
		return "holds " + quote("#"+u.Fragment) + ", which is not a weight", fmt.Sprintf("write #weight=N, with N from 1 to %d, or leave it out", maxWeight)
	case isService(u) && u.Port() != "":
		return quote(u.Host) + " is the name of a service, and has a port", "remove the port: the SRV records of the name have it"
	case strings.HasSuffix(u.Host, ":") || u.Port() != "" && !isPort(u.Port()) || u.Port() == "0":
		return quote(u.Host) + " has no port that can be dialed", "write a port from 1 to 65535, or leave out the colon"
	case u.Scheme == schemeTCP && (u.Port() == "" && !isService(u) || u.Path != ""):
		return quote(u.Redacted()) + " is not of the form tcp://host:port", "write an address such as tcp://10.0.1.1:873"
	default:
		return "", ""
	}
}

// isService reports whether the host of an upstream is the name of SRV records.
func isService(u *url.URL) bool { return strings.HasPrefix(u.Host, "_") }

// maxWeight is the largest weight of an upstream.
const maxWeight = 1000

// isWeight reports whether s, the fragment of an upstream's URL, is a weight.
func isWeight(s string) bool {
	text, ok := strings.CutPrefix(s, "weight=")
	n, err := strconv.Atoi(text)
	return ok && err == nil && n >= 1 && n <= maxWeight
}

// isPort reports whether s is a port number; 0 is one.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == s
}

// parsePrefix reads a network, or an address as a network of one.
func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, problem(quote(s)+" is not a network", "write an address or a network such as 10.0.0.0/8")
	}
	if mapped := 128 - 32; p.Addr().Is4In6() && p.Bits() >= mapped { // clients' addresses are IPv4 then
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p.Masked(), nil
}

// parseAddr reads an IP address; empty is none.
func parseAddr(s string) (netip.Addr, error) {
	if s == "" {
		return netip.Addr{}, nil
	}
	addr, err := netip.ParseAddr(s)
	if err == nil {
		return addr, nil
	}
	if host, _, splitErr := net.SplitHostPort(s); splitErr == nil {
		if _, err := netip.ParseAddr(host); err == nil {
			return netip.Addr{}, problem(quote(s)+" has a port", "write "+host+"; the port is that of listen.peer")
		}
	}
	return netip.Addr{}, problem(quote(s)+" is not an IP address", "write an address of this machine, such as 10.0.0.1")
}

// checkHostPort says what is wrong with an address host:port. dial: the
// address is to be dialed, so it needs a host and a port of its own.
func checkHostPort(s string, dial bool) (wrong, hint string) {
	hint = `write "host:port", such as ":8080" or "127.0.0.1:8080"`
	if dial {
		hint = `write "host:port", such as "10.0.0.2:7080"`
	}
	if s == "" {
		return "is empty", hint
	}
	if strings.Contains(s, "://") {
		return quote(s) + " is a URL", hint
	}
	host, port, err := net.SplitHostPort(s)
	switch {
	case err != nil && isPort(s):
		return quote(s) + " has no colon", `write ":` + s + `"`
	case err != nil:
		return quote(s) + " is not an address with a port", hint
	case !isPort(port):
		return "the port " + quote(port) + " is not a number from 0 to 65535", hint
	case dial && port == "0":
		return "port 0 cannot be dialed", hint
	case dial && host == "":
		return quote(s) + " has no host", hint
	case host != "" && !isHost(host):
		return quote(host) + " is not a host name or an IP address", hint
	default:
		return "", ""
	}
}

// isHost reports whether s is an IP address or looks like a host name.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return len(s) <= 253 && s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == ""
}

// isK reports whether s, the fragment of an upstream's URL, is its k, or that of each of its servers.
func isK(s string) bool {
	text, ok := strings.CutPrefix(strings.Replace(s, "k_each=", "k=", 1), "k=")
	n, err := strconv.Atoi(text)
	return ok && err == nil && n >= 1 && n <= kmutex.MaxK
}
