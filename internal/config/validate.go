package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Keys that more than one place refers to.
const (
	keyAdmin  = "listen.admin"
	keyHTTPS  = "listen.https"
	keyPools  = "pools"
	keyRoutes = "routes"
	keyTCP    = "listen.tcp"

	keyCertificates = "listen.tls.certificates"
	keyErrorPages   = "error_pages"
)

const hintNodeName = "write letters, digits, - and . only, at most 128"

// maxLease is the longest lease.
const maxLease = 10 * time.Minute

// Validate reports everything that is wrong with c, joined; each error names its key.
// It changes nothing, and asks neither the file system nor the
// network: whether a certificate exists shows when it is read.
func (c *Config) Validate() error { return c.check(nil) }

var (
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"json", "text"}
)

// problems returns what is wrong with the values that could be read.
func (c *Config) problems() []error {
	v := &validator{src: c.src}
	v.node(c.Node)
	v.listen(c.Listen, c.Node.AdminTokenFile)
	v.cluster(c.Cluster)
	v.guard(c)
	if c.Node.Role == RoleWitness {
		v.witness(c)
	} else {
		v.pools(c.Pools)
	}
	v.routes(c.Routes, c.Pools)
	v.requestID(c)
	v.errorPages(keyErrorPages, c.ErrorPages)
	v.tcp(c.Listen.TCP, c.Pools)
	if !c.Drain.Timeout.Auto {
		v.duration("drain.timeout", c.Drain.Timeout.Duration, 0)
	}
	oneOf(v, "drain.waiting", c.Drain.Waiting, waitings)
	oneOf(v, "log.level", c.Log.Level, logLevels)
	oneOf(v, "log.format", c.Log.Format, logFormats)
	v.telemetry(c.Telemetry)
	return v.errs
}

// witness checks what a witness must not have, and must.
func (v *validator) witness(c *Config) {
	for _, part := range []struct {
		key   string
		given bool
	}{{keyPools, len(c.Pools) > 0}, {keyRoutes, len(c.Routes) > 0}, {keyTCP, len(c.Listen.TCP) > 0}, {keyHTTPS, c.Listen.HTTPS != ""}} {
		if part.given {
			v.wrong(part.key, "is given, and this is a witness, which serves nothing", "leave it out, or write node: {role: gateway}")
		}
	}
	if c.Bootstrap() == 1 {
		v.wrong("node.role", "is witness, and there is no other gateway to vote with", "write cluster.join, or cluster.bootstrap_expect with the number of all, such as 3")
	}
}

func (v *validator) node(n Node) {
	oneOf(v, "node.role", n.Role, roles)
	if n.Name != "" {
		v.name("node.name", n.Name, isNodeName, hintNodeName)
	}
	if n.Advertise.IsValid() && (n.Advertise.IsUnspecified() || n.Advertise.IsMulticast()) {
		v.wrong("node.advertise", n.Advertise.String()+" is not an address that others can dial", "write an address of this machine, such as 10.0.0.1")
	}
}

// isNodeName reports whether serf takes s as a name.
func isNodeName(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") == ""
}

func (v *validator) cluster(c Cluster) {
	for i, addr := range c.Join {
		wrong, hint := checkHostPort(addr, true)
		v.wrong(fmt.Sprintf("cluster.join[%d]", i), wrong, hint)
	}
	v.whole("cluster.bootstrap_expect", c.BootstrapExpect, 0, 1000)
	v.duration("cluster.lease", c.Lease, time.Second)
	if c.Lease > maxLease {
		v.wrong("cluster.lease", c.Lease.String()+" is too long: the slots of a lost gateway come back no sooner", "write "+maxLease.String()+" or less")
	}
	if c.KeyFile != "" && c.TLS.Enabled() {
		v.wrong("cluster.key_file", "is given beside tls, which it replaces", "write one of them")
	}
	if t := c.TLS; t.Enabled() {
		for i, name := range t.Names {
			v.name(fmt.Sprintf("cluster.tls.names[%d]", i), name, isNodeName, hintNodeName)
		}
		for _, part := range []struct{ key, file string }{{"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key}} {
			if part.file == "" {
				v.wrong("cluster.tls."+part.key, "is missing", "write the PEM files ca, cert and key, all three, or none of them")
			}
		}
	}
}

func (v *validator) telemetry(t Telemetry) {
	if math.IsNaN(t.SampleRatio) || t.SampleRatio < 0 || t.SampleRatio > 1 {
		v.wrong("telemetry.sample_ratio", fmt.Sprintf("%v is out of range", t.SampleRatio), "write a number from 0 (none) to 1 (all)")
	}
	if t.OTLPEndpoint == "" {
		return
	}
	u, err := url.Parse(t.OTLPEndpoint)
	if err != nil || u.Hostname() == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) {
		v.wrong("telemetry.otlp_endpoint", quote(t.OTLPEndpoint)+" is not the URL of a collector", "write a URL such as http://127.0.0.1:4318")
	}
}

// check joins the errors found so far with those of Validate.
func (c *Config) check(errs []error) error { return c.join(append(errs, c.problems()...)) }

// join joins errors in the order of the file.
func (c *Config) join(errs []error) error {
	slices.SortStableFunc(errs, func(a, b error) int {
		var x, y *valueError
		if !errors.As(a, &x) || !errors.As(b, &y) {
			return 0
		}
		return cmp.Or(cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column))
	})
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(errs[:maxErrors:maxErrors], fmt.Errorf("%s: and %d more %w", c.src.file, more, errInvalid))
	}
	return errors.Join(errs...)
}

// maxErrors is how many errors of one file are reported.
const maxErrors = 50
