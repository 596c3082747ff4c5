package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/clusterkey"
)

// keygenCommand makes the keys that protect a cluster.
type keygenCommand struct {
	CA      bool     `name:"ca" help:"Make an authority: ca.pem and ca-key.pem."`
	Peer    []string `name:"peer" placeholder:"NAME" help:"Make a gateway's certificate: NAME.pem and NAME-key.pem. May be given several times."`
	Cluster bool     `name:"cluster" help:"Make the cluster key, for cluster.key_file: cluster.key."`
	Token   bool     `name:"token" help:"Make the token that changes from other machines require: admin.token."`
	Out     string   `name:"out" placeholder:"FILE" help:"Write the cluster key to this file."`
	Dir     string   `name:"dir" placeholder:"DIR" default:"." help:"Folder for the files, and of the authority (default: the current one)."`
	Days    int      `name:"days" placeholder:"N" help:"How long a certificate is valid (default: an authority 3650 days, a gateway 730)."`
}

func (keygenCommand) Help() string {
	return `With --out it writes a cluster key to a file: copy that to every gateway, and name
it with cluster.key_file or --cluster-key-file. It is all that gateways need to
trust each other. Without flags it prints such a key.

It never overwrites a file. Keys and tokens can be read by their owner only.

Certificates, one for each gateway with its name, can take the place of the
cluster key. Then no gateway can use another one's name. Keep ca-key.pem away
from the gateways; only new certificates need it.

Examples:
  kgate keygen --out cluster.key
  kgate keygen --dir keys --cluster --token
  kgate keygen --dir keys --ca --peer gw-1 --peer gw-2 --peer gw-3

Exit codes: 0 made, 1 not made, 2 wrong command line.`
}

// keyFile is a file to be written.
type keyFile struct {
	name    string
	content []byte
	secret  bool
}

// peerName is a gateway's name, which becomes a file's.
var peerName = regexp.MustCompile(`^[a-zA-Z0-9-][a-zA-Z0-9.-]{0,127}$`)

// Run makes the files that the flags ask for; none if one of them exists.
func (c *keygenCommand) Run(std streams) error {
	if c.Days < 0 || c.Days > 100*365 {
		return usageError("--days %d: write a number of days up to 36500, such as 730", c.Days)
	}
	for _, name := range c.Peer {
		if !peerName.MatchString(name) || name == "ca" {
			return usageError("--peer %q is not the name of a gateway; write its node.name, such as gw-1", name)
		}
	}
	more := c.CA || c.Cluster || c.Token || len(c.Peer) > 0
	if c.Out != "" {
		if more {
			return usageError("--out is for a cluster key alone: write --dir DIR for several files")
		}
		key := keyFile{filepath.Base(c.Out), []byte(clusterkey.New() + "\n"), true}
		if err := writeKeyFiles(filepath.Dir(c.Out), []keyFile{key}); err != nil {
			return err
		}
		_, err := fmt.Fprintln(std.out, c.Out)
		return err
	}
	if !more {
		_, err := fmt.Fprintln(std.out, clusterkey.New())
		return err
	}
	files, err := c.make(time.Now())
	if err != nil {
		return err
	}
	if err := writeKeyFiles(c.Dir, files); err != nil {
		return err
	}
	for _, f := range files {
		fmt.Fprintln(std.out, filepath.Join(c.Dir, f.name))
	}
	return nil
}

// make returns the files that the flags ask for.
func (c *keygenCommand) make(now time.Time) ([]keyFile, error) {
	var files []keyFile
	var ca *authority
	if c.CA {
		var err error
		if ca, err = newAuthority(now, c.validity(authorityDays)); err != nil {
			return nil, err
		}
		made, err := ca.files()
		if err != nil {
			return nil, err
		}
		files = append(files, made...)
	}
	if c.Cluster {
		files = append(files, keyFile{"cluster.key", []byte(clusterkey.New() + "\n"), true})
	}
	if c.Token {
		files = append(files, keyFile{"admin.token", []byte(newToken() + "\n"), true})
	}
	if len(c.Peer) > 0 && ca == nil {
		var err error
		if ca, err = readAuthority(c.Dir); err != nil {
			return nil, err
		}
	}
	for _, name := range c.Peer {
		made, err := ca.issue(name, now, c.validity(peerDays))
		if err != nil {
			return nil, err
		}
		files = append(files, made...)
	}
	return files, nil
}

// How long certificates are valid by default, in days. A gateway warns 30 days before the
// end, and reads a new certificate without a restart.
const authorityDays, peerDays = 3650, 730

func (c *keygenCommand) validity(days int) time.Duration {
	if c.Days > 0 {
		days = c.Days
	}
	return time.Duration(days) * 24 * time.Hour
}

// writeKeyFiles writes files that are not there yet. If one is, none is written.
func writeKeyFiles(dir string, files []keyFile) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var there []string
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			there = append(there, path)
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("no file is overwritten: %s exists; move it away first if you want a new one", strings.Join(there, ", "))
	}
	for _, f := range files {
		if err := f.write(dir); err != nil {
			return err
		}
	}
	return nil
}

func (f keyFile) write(dir string) error {
	mode := fs.FileMode(0o644)
	if f.secret {
		mode = 0o600
	}
	out, err := os.OpenFile(filepath.Join(dir, f.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = out.Write(f.content)
	return errors.Join(err, out.Close())
}
