// Package socket carries HTTP over Unix sockets, with addresses such as unix:/run/kgate/admin.sock in
// the place of host:port or a URL. The permissions of the socket's file guard the admin address.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

const (
	scheme = "unix:"
	// suffix, behind a path in hexadecimal digits, makes a host that stands for a
	// socket in URLs of package http.
	suffix = ".kgate.socket"
)

// Path returns the path of a socket's address, and whether addr is such an address.
func Path(addr string) (path string, ok bool) { return strings.CutPrefix(addr, scheme) }

// Check returns what is wrong with a socket's path.
func Check(path string) error {
	const longest = 100 // the kernel's limit is a little more
	switch {
	case !filepath.IsAbs(path):
		return errors.New("the path of a socket begins with a slash")
	case len(path) > longest:
		return fmt.Errorf("the path of a socket has at most %d bytes", longest)
	}
	return nil
}

// Listen listens on a socket that the owner and the group of this process may open. It removes a
// socket that an earlier process has left.
func Listen(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		conn, err := net.Dial("unix", path)
		if err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("%s: somebody listens there already", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	const ownerAndGroup = 0o660
	if err := os.Chmod(path, ownerAndGroup); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// ParseURL parses the base URL of a gateway, or the address of a socket; for a socket it returns a URL
// that only [Transport] knows.
func ParseURL(text string) (*url.URL, error) {
	path, ok := Path(text)
	if !ok {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("%q is not a URL; write http://HOST:PORT, https://HOST:PORT or unix:/PATH", text)
		}
		return u, nil
	}
	if err := Check(path); err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return &url.URL{Scheme: "http", Host: fmt.Sprintf("%x%s", path, suffix)}, nil
}

// Transport returns a transport for the URLs of ParseURL, sockets included. The caller may change it
// before its first use.
func Transport() *http.Transport {
	var d net.Dialer
	return &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) {
			if strings.HasSuffix(r.URL.Host, suffix) {
				return nil, nil
			}
			return http.ProxyFromEnvironment(r)
		},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			name, isSocket := strings.CutSuffix(strings.TrimSuffix(addr, ":80"), suffix)
			if !isSocket {
				return d.DialContext(ctx, network, addr)
			}
			var path []byte
			if _, err := fmt.Sscanf(name, "%x", &path); err != nil {
				return nil, err
			}
			return d.DialContext(ctx, "unix", string(path))
		},
	}
}

// Name formats a URL of ParseURL for people.
func Name(u *url.URL) string {
	name, isSocket := strings.CutSuffix(u.Host, suffix)
	var path []byte
	if !isSocket {
		return u.Host
	}
	if _, err := fmt.Sscanf(name, "%x", &path); err != nil {
		return u.Host
	}
	return scheme + string(path)
}
