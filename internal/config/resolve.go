package config

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/kgate/kgate/internal/hostaddr"
)

// ErrHost is what Resolve wraps when the host does not tell what the
// configuration leaves open.
var ErrHost = errors.New("config: the host does not say")

// Resolve fills in what depends on this host and is not given:
//
//   - node.name: the host name;
//   - node.advertise: the host of listen.peer if that is one address; else, if
//     neither listener is bound to loopback, this machine's first private
//     address, or its first global one; 127.0.0.1 if there is none, which is
//     enough for a gateway alone.
func (c *Config) Resolve() error {
	return c.resolve(os.Hostname, net.InterfaceAddrs)
}

func (c *Config) resolve(hostname func() (string, error), interfaces func() ([]net.Addr, error)) error {
	if c.Node.Name == "" {
		name, err := hostname()
		if err != nil {
			return fmt.Errorf("%w its name: %w; write node.name", ErrHost, err)
		}
		if !isNodeName(name) {
			return fmt.Errorf("%w a usable name, only %s; write node.name, of letters, digits, dots and hyphens", ErrHost, quote(name))
		}
		c.Node.Name = name
	}
	if c.Node.Advertise.IsValid() {
		return nil
	}
	addr, err := hostaddr.Advertised(interfaces, c.Listen.Peer)
	if err != nil {
		return fmt.Errorf("%w its addresses: %w; write node.advertise", ErrHost, err)
	}
	c.Node.Advertise = addr
	return nil
}
